// Merges lists of attention states, of a fixed or a variable length, in one pass over them.
#include "cascade/accumulator.hpp"

ROCADE_KERNEL(rocade::kThreads, 4) rocade_merge_states(ROCADE_ARGUMENT rocade::MergeStatesArgs args) {
  using namespace rocade;
  ROCADE_SHARED static Meeting<kPack<Element>> meeting;
  reduce_lists<Element, Element, true>(args, meeting);
}
