#include "file_rows.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#ifdef _WIN32
#define NOMINMAX
#include <windows.h>
#else
#include <fcntl.h>
#include <unistd.h>
#endif

namespace greenroom {
namespace {

// Fits the L2 cache beside the strips it becomes; large enough that a system call costs nothing beside the copy.
constexpr size_t kPiece = 96 << 10;

} // namespace

#ifdef _WIN32

InputFile::InputFile(const std::filesystem::path& path)
    : handle_(CreateFileW(path.c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                          OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr)) {
  if (handle_ == INVALID_HANDLE_VALUE)
    throw std::system_error(static_cast<int>(GetLastError()), std::system_category(), "cannot be opened");
}

InputFile::~InputFile() {
  CloseHandle(handle_);
}

void InputFile::read(uint64_t offset, size_t nbytes, uint8_t* out) const {
  while (nbytes) {
    OVERLAPPED at = {};
    at.Offset = static_cast<DWORD>(offset);
    at.OffsetHigh = static_cast<DWORD>(offset >> 32);
    DWORD count = 0;
    const DWORD most = static_cast<DWORD>(std::min<size_t>(nbytes, 1u << 30));
    if (!ReadFile(handle_, out, most, &count, &at) && GetLastError() != ERROR_HANDLE_EOF)
      throw std::system_error(static_cast<int>(GetLastError()), std::system_category(), "cannot be read");
    if (!count)
      throw EndOfFile(std::to_string(nbytes) + " bytes are missing");
    offset += count, out += count, nbytes -= count;
  }
}

#else

InputFile::InputFile(const std::filesystem::path& path) : handle_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (handle_ < 0)
    throw std::system_error(errno, std::generic_category(), "cannot be opened");
}

InputFile::~InputFile() {
  close(handle_);
}

void InputFile::read(uint64_t offset, size_t nbytes, uint8_t* out) const {
  while (nbytes) {
    const ssize_t count = pread(handle_, out, nbytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      throw std::system_error(errno, std::generic_category(), "cannot be read");
    if (count == 0)
      throw EndOfFile(std::to_string(nbytes) + " bytes are missing");
    const size_t got = static_cast<size_t>(count);
    offset += got, out += got, nbytes -= got;
  }
}

#endif

void pack_file(ThreadPool& pool, const PackedMatrix& matrix, const InputFile& file, uint64_t offset, size_t nbytes,
               long long first_row) {
  const size_t row_nbytes = matrix.layout.stored_row_nbytes();
  if (nbytes % row_nbytes != 0 || nbytes == 0)
    throw std::invalid_argument(std::to_string(nbytes) + " bytes are not a whole number of rows of " +
                                std::to_string(row_nbytes) + " bytes");
  if (first_row < 0 || static_cast<size_t>(first_row) > matrix.layout.rows)
    throw std::invalid_argument("row " + std::to_string(first_row) + " does not exist: the matrix has " +
                                std::to_string(matrix.layout.rows));
  const size_t first = static_cast<size_t>(first_row), count = nbytes / row_nbytes;
  // Pieces end where strips do, so that no two threads write to one.
  const size_t strips = std::max<size_t>(1, kPiece / row_nbytes / kStripRows), piece = strips * kStripRows;
  const size_t first_piece = first / piece, pieces = (first + count + piece - 1) / piece - first_piece;
  struct Packer {
    ThreadPool alone{1};
    std::vector<uint8_t> bytes;
  };
  ThreadPool::Call call(pool);
  std::vector<Packer> packers(static_cast<size_t>(call.threads()));
  call.run({{pieces, [&](size_t tile, int worker) {
               const size_t start = std::max(first, (first_piece + tile) * piece);
               const size_t rows = std::min(first + count, (first_piece + tile + 1) * piece) - start;
               Packer& packer = packers[static_cast<size_t>(worker)];
               packer.bytes.resize(piece * row_nbytes);
               file.read(offset + (start - first) * row_nbytes, rows * row_nbytes, packer.bytes.data());
               pack(packer.alone, matrix, packer.bytes.data(), rows * row_nbytes, static_cast<long long>(start));
             }}});
}

} // namespace greenroom
