// What the files of engine._native share.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace py = pybind11;

using Name = std::optional<std::string>;
using Unlocked = py::call_guard<py::gil_scoped_release>;

void bind_decoder(py::module_& m);

inline size_t count(long long n, const char* what) {
  if (n < 0 || n > (1LL << 32))
    throw std::invalid_argument(std::string(what) + " must be 0 to 2^32, not " + std::to_string(n));
  return static_cast<size_t>(n);
}

template <class T> T* address(uintptr_t where, size_t elements, const char* what) {
  if (elements && !where)
    throw std::invalid_argument(std::string(what) + " is a null address");
  if (where % alignof(T))
    throw std::invalid_argument(std::string(what) + " is not aligned to its element size");
  return reinterpret_cast<T*>(where);
}

using Floats = std::optional<py::array_t<float, py::array::c_style>>;

inline std::vector<float> vector_of(const Floats& values) {
  return values ? std::vector<float>(values->data(), values->data() + values->size()) : std::vector<float>();
}
