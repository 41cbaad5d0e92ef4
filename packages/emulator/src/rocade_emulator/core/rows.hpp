// Helpers that turn the rows of an .inc file into OpInfo entries.
#pragma once

#include "table.hpp"
#include "valu.hpp"

namespace emu {

template <class T> constexpr Type type_of() {
  if constexpr (std::is_same_v<T, bool>)
    return Type::Mask;
  else if constexpr (std::is_same_v<T, Carry>)
    return Type::B32;
  else
    return Lane<T>::type;
}

template <class R, class... Args>
OpInfo describe(R (*)(Args...), const char* name, Format format, Unit unit, int opcode, Target target,
                Exec exec) {
  OpInfo row{name, format, unit, static_cast<u16>(opcode), target, exec, type_of<R>(), Type::None, {}};
  if (std::is_same_v<R, Carry>)
    row.dst2 = Type::Mask;
  Type sources[] = {type_of<Args>()..., Type::None};
  for (std::size_t k = 0; k < sizeof...(Args); ++k)
    row.src[k] = sources[k];
  return row;
}

template <class Op> OpInfo valu_row(const char* name, Format format, Unit unit, int opcode, Target target) {
  return describe(&Op::apply, name, format, unit, opcode, target, &run_valu<Op>);
}

inline OpInfo special_row(const char* name, Format format, Unit unit, int opcode, Target target, Exec exec,
                          Type dst, std::initializer_list<Type> sources) {
  OpInfo row{name, format, unit, static_cast<u16>(opcode), target, exec, dst, Type::None, {}};
  int k = 0;
  for (Type t : sources)
    row.src[k++] = t;
  return row;
}

} // namespace emu
