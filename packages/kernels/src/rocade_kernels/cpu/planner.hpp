// The planner: from checked plan arrays to a work list. See planner.cpp.
#pragma once
#include "plan.hpp"

namespace rk {

// Fills an empty plan. Arrays are validated here again: a library must not trust its caller with its memory.
rk_status make_plan(const rk_plan_args& args, rk_plan& plan);

// planner_tree.cpp: levels to nodes, and rows to positions.
rk_status build_tree(const rk_plan_args& args, rk_plan& plan);

} // namespace rk
