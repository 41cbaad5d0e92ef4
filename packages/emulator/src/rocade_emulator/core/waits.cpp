// In-order retirement of memory operations; see waits.hpp.
#include "waits.hpp"

#include "lds.hpp"

namespace emu {
namespace {

// A register may be the destination of a younger operation too; it stays pending until the last one retires.
template <int N> bool written_again(const Queue<N>& q, const InFlight& f) {
  for (u32 k = q.head; k != q.tail; ++k) {
    const InFlight& other = q.items[k % N];
    if (other.scalar == f.scalar && other.first < f.first + f.count && f.first < other.first + other.count)
      return true;
  }
  return false;
}

template <int N> void retire_oldest(Wave& w, Queue<N>& q) {
  InFlight f = q.front();
  q.pop();
  if (f.to_lds)
    land_staged(w, f);
  if (f.count == 0 || written_again(w.vm, f) || written_again(w.lgkm, f))
    return;
  if (f.scalar)
    w.s_pending.clear(f.first, f.count);
  else
    w.pending.clear(f.first, f.count);
}

template <int N> void issue(Wave& w, Queue<N>& q, const InFlight& f) {
  if (q.full())
    retire_oldest(w, q); // the hardware stalls here until the oldest is done
  q.push(f);
  if (f.count == 0)
    return;
  if (f.scalar)
    w.s_pending.set(f.first, f.count);
  else
    w.pending.set(f.first, f.count);
}

bool holds_unordered(const Queue<64>& q) {
  for (u32 k = q.head; k != q.tail; ++k)
    if (q.items[k % 64].unordered)
      return true;
  return false;
}

} // namespace

void issue_vm(Wave& w, const InFlight& f) { issue(w, w.vm, f); }
void issue_lgkm(Wave& w, InFlight f) {
  f.sequence = next_sequence(*w.group);
  issue(w, w.lgkm, f);
}

void issue_flat(Wave& w, InFlight f) {
  f.unordered = true;
  issue_vm(w, f);
  issue_lgkm(w, f);
}

void wait_vm(Wave& w, u32 vm) {
  if (vm != 0 && holds_unordered(w.vm))
    return;
  while (w.vm.size() > vm)
    retire_oldest(w, w.vm);
}

void wait_lgkm(Wave& w, u32 lgkm) {
  if (lgkm != 0 && holds_unordered(w.lgkm))
    return; // a count above 0 proves nothing
  while (w.lgkm.size() > lgkm)
    retire_oldest(w, w.lgkm);
}

} // namespace emu
