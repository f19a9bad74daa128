// The pool: the caller claims tasks itself, helpers are optional, nobody waits for a task that nobody has claimed.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "pool.h"

namespace kvroll {

class ThreadPool final : public Pool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void run(std::int64_t total, Task task, void* context) override;
  int threads() const override { return threads_.load(std::memory_order_relaxed); }
  void resize(int threads);

 private:
  void start(int threads);
  void stop();
  void help();
  std::uint32_t await_job(std::uint32_t seen);
  std::uint32_t claim_all();
  void await_claimed(std::uint32_t total);

  // generation << 32 | next index. An index of kClosed takes no claims, so the job's fields may change under it.
  alignas(64) std::atomic<std::uint64_t> ticket_;
  alignas(64) std::atomic<std::uint32_t> done_{0};
  std::atomic<std::uint32_t> caller_sleeps_{0};
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<Task> task_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<std::uint32_t> total_{0};
  std::atomic<int> threads_{1};
  std::mutex region_;
  std::vector<std::thread> helpers_;
};

}  // namespace kvroll
