// Adds up lists of values, of a fixed or a variable length, without weights.
#include "cascade/accumulator.hpp"

ROCADE_KERNEL(rocade::kThreads, 4) rocade_attention_sum(ROCADE_ARGUMENT rocade::AttentionSumArgs args) {
  using namespace rocade;
  ROCADE_SHARED static Meeting<kPack<Element>> meeting;
  reduce_lists<Element, Element, false>(args, meeting);
}
