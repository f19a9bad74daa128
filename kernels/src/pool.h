// How a kernel asks for parallel work. No standard-library templates here: files compiled for one instruction set
// must not leave inline functions behind that the linker could pick for another.
#pragma once

#include <cstdint>

namespace kvroll {

class Pool {
 public:
  using Task = void (*)(void* context, std::int64_t index);

  virtual ~Pool() = default;
  // Calls task(context, i) once for every i in [0, total), on the caller and any helpers; returns when all are done.
  virtual void run(std::int64_t total, Task task, void* context) = 0;
  virtual int threads() const = 0;
};

template <class Function>
void parallel(Pool& pool, std::int64_t total, const Function& function) {
  pool.run(
      total, [](void* context, std::int64_t index) { (*static_cast<const Function*>(context))(index); },
      const_cast<void*>(static_cast<const void*>(&function)));
}

// Rows in blocks, inline when the whole call is too small to be worth a region (about 10 us of work).
template <class Function>
void parallel_rows(Pool& pool, std::int64_t rows, std::int64_t work_per_row, const Function& function) {
  constexpr std::int64_t kWorthwhile = 32768;
  if (rows < 2 || pool.threads() < 2 || rows * work_per_row < kWorthwhile) {
    for (std::int64_t row = 0; row < rows; ++row) function(row);
    return;
  }
  const std::int64_t wanted = pool.threads() * 4;
  const std::int64_t block = (rows + wanted - 1) / wanted;
  parallel(pool, (rows + block - 1) / block, [&](std::int64_t index) {
    const std::int64_t end = (index + 1) * block < rows ? (index + 1) * block : rows;
    for (std::int64_t row = index * block; row < end; ++row) function(row);
  });
}

}  // namespace kvroll
