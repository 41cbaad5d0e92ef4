// Ranges of device memory and the bounds of strided views.
#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace emu {
namespace {

// Position of a byte inside a view: peel the dimensions off, largest stride first; what is left must lie in
// an element.
bool in_view(const Range& r, u64 offset, u32 bytes) {
  for (std::size_t d = 0; d < r.sizes.size(); ++d) {
    if (r.strides[d] == 0)
      continue;
    u64 index = std::min(offset / r.strides[d], r.sizes[d] - 1);
    offset -= index * r.strides[d];
  }
  return offset + bytes <= r.element;
}

} // namespace

bool Range::covers(u64 address, u32 bytes) const {
  if (!spans(address, bytes))
    return false;
  if (element == 0)
    return true;
  // An access may span elements that lie side by side, so each piece of element size is looked up by itself.
  for (u64 at = address; at < address + bytes;) {
    u32 piece = static_cast<u32>(std::min<u64>(element - (at - begin) % element, address + bytes - at));
    if (!in_view(*this, at - begin, piece))
      return false;
    at += piece;
  }
  return true;
}

// Workgroups on several host threads share the ranges of global memory, so bits are set atomically.
bool mark_bytes(u8* defined, u64 first, u32 bytes, bool write) {
  for (u64 at = first, end = first + bytes; at < end;) {
    u64 next = std::min(end, (at / 8 + 1) * 8);
    u8 mask = static_cast<u8>((1u << (next - at)) - 1) << at % 8;
    std::atomic_ref<u8> bits(defined[at / 8]);
    u8 missing = mask & ~bits.load(std::memory_order_relaxed);
    if (missing && !write)
      return false;
    if (missing)
      bits.fetch_or(mask, std::memory_order_relaxed);
    at = next;
  }
  return true;
}

void Unmap::operator()(u8* at) const { munmap(at, bytes); }

SparseBytes sparse_bytes(u64 bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    throw std::bad_alloc();
  return SparseBytes(static_cast<u8*>(at), Unmap{bytes});
}

bool Range::mark(u64 address, u32 bytes, bool write) {
  return mark_bytes(defined.get(), address - begin, bytes, write);
}

// Allocations lie so far apart that none of them shares a cache line with another, in the order of their
// arrival: the host's addresses have no part in it.
void Memory::add(Range range) {
  constexpr int kApart = 47; // bits of a user address of the host
  u64 place = placed_.try_emplace(range.origin, u64{placed_.size() + 1} << kApart).first->second;
  range.shift = place - range.origin;
  auto at = std::upper_bound(ranges_.begin(), ranges_.end(), range.begin,
                             [](u64 begin, const Range& r) { return begin < r.begin; });
  ranges_.insert(at, std::move(range));
}

void Memory::mark_arguments(u64 begin) {
  for (Range& r : ranges_)
    r.arguments |= r.begin == begin;
}

const Range* Memory::around(u64 address, u32 bytes, u32 hint) const {
  if (hint < ranges_.size() && ranges_[hint].spans(address, bytes))
    return &ranges_[hint];
  for (const Range& r : ranges_)
    if (r.spans(address, bytes))
      return &r;
  return nullptr;
}

Range* Memory::find(u64 address, u32 bytes, bool write, u32& hint) {
  auto fits = [&](const Range& r) { return (r.writable || !write) && r.covers(address, bytes); };
  if (hint < ranges_.size() && fits(ranges_[hint]))
    return &ranges_[hint];
  Range* refused = nullptr;
  for (u32 k = 0; k < ranges_.size() && ranges_[k].begin <= address; ++k) {
    if (fits(ranges_[k]))
      return &ranges_[hint = k];
    if (!refused && ranges_[k].covers(address, bytes))
      refused = &ranges_[k];
  }
  return refused;
}

bool Memory::defined(u64 address, u32 bytes) const {
  auto by_any = [&](u64 at) {
    return std::ranges::any_of(ranges_, [&](const Range& r) {
      return r.covers(at, 1) && (!r.defined || mark_bytes(r.defined.get(), at - r.begin, 1, false));
    });
  };
  for (u64 at = address; at < address + bytes; ++at)
    if (!by_any(at))
      return false;
  return true;
}

} // namespace emu
