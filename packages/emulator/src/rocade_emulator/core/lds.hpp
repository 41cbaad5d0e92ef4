// LDS of a workgroup: bounds, who wrote what since the last barrier, and direct-to-LDS loads in flight.
#pragma once

#include "group.hpp"
#include "lds_tags.hpp"

namespace emu {

enum class Access : u8 { Read, Write, Atomic };

// Check one lane's access; returns the bytes, or nullptr when it is out of bounds (reported). `data` is what
// a Write will store: waves may store the same value to the same place.
u8* touch_lds(Wave& w, const Inst& i, int lane, u32 address, u32 bytes, Access access,
              const u8* data = nullptr);

// The accesses of all active lanes at once, `kBytes` each. True: they are noted, and nothing about them is
// worth a report. False: some may be; the caller has to touch lane by lane, and nothing that decides about
// that has changed. (lds_wave.cpp; for 1, 2, 4, 8, 12 and 16 bytes.)
template <u32 kBytes> bool read_lds(const Wave& w, const u32* addresses);
template <u32 kBytes> bool write_lds(const Wave& w, const u32* addresses, u64 lanes, bool landed = false);

// Whether some of these accesses may reach LDS that a direct-to-LDS load in flight is going to write.
bool near_staged(const Wave& w, const u32* addresses, u64 lanes, u32 bytes);

// A barrier opens.
void begin_epoch(Group& g);
// The first operation that is not known to be over, or not of an earlier epoch.
u32 first_unsafe(const Group& g);
// A number for an operation on LDS. Throws when there are no more.
u32 next_sequence(Group& g);

// The place for a direct-to-LDS load until vmcnt retires it; `land_staged` writes it to LDS.
StagedLds& staged_lds(Wave& w, u32& slot);
void land_staged(Wave& w, const InFlight& f);

} // namespace emu
