// Stored rows straight from a file: read in pieces that stay in the cache until they are packed, so that no second copy
// of the model is ever in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>

#include "packing.h"

namespace greenroom {

class EndOfFile : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

class InputFile {
public:
  // Throws std::system_error.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Any number of threads may read at once. Throws std::system_error, or EndOfFile when the file ends too early.
  void read(uint64_t offset, size_t nbytes, uint8_t* out) const;

private:
#ifdef _WIN32
  void* handle_;
#else
  int handle_;
#endif
};

// As pack(), with the rows' bytes at `offset` of a file. Throws what InputFile::read and pack throw.
void pack_file(ThreadPool& pool, const PackedMatrix& matrix, const InputFile& file, uint64_t offset, size_t nbytes,
               long long first_row);

} // namespace greenroom
