// Adds up lists of values, of a fixed or a variable length, without weights.
#include "cascade/accumulator.hpp"

ROCADE_KERNEL(rocade::kThreads) rocade_attention_sum(ROCADE_ARGUMENT rocade::AttentionSumArgs args) {
  using namespace rocade;
  ROCADE_SHARED static Meeting<kPack<Element>> meeting;
  if (args.aligned)
    reduce_lists<Element, Element, false, true>(args, meeting);
  else
    reduce_lists<Element, Element, false, false>(args, meeting);
}
