// Merges lists of attention states, of a fixed or a variable length, in one pass over them.
#include "cascade/accumulator.hpp"

#if ROCADE_VARIANT_FP32_STATES
using State = rocade::fp32;
#else
using State = rocade::Element;
#endif

ROCADE_KERNEL(rocade::kThreads, 4) rocade_merge_states(ROCADE_ARGUMENT rocade::MergeStatesArgs args) {
  using namespace rocade;
  ROCADE_SHARED static Meeting<kPack<State>> meeting;
  reduce_lists<State, Element, true>(args, meeting);
}
