#include "thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvroll {
namespace {

constexpr std::uint32_t kClosed = 0xffffffffu;
// Longer than the serial gaps inside a step, shorter than the gap between two steps: helpers sleep between steps.
constexpr auto kSpin = std::chrono::microseconds(50);
// After this much spinning the core is offered to others on every look: several workers share the cores.
constexpr auto kPolite = std::chrono::microseconds(10);

static_assert(sizeof(std::atomic<std::uint32_t>) == 4, "a futex is 32 bits");

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Looks until `ready` or until kSpin is over; true when ready.
template <class Ready>
bool spin(const Ready& ready) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      relax();
    }
    const auto spent = std::chrono::steady_clock::now() - begin;
    if (spent > kSpin) return false;
    if (spent > kPolite) sched_yield();
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) : ticket_(kClosed) { start(threads); }

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::resize(int threads) {
  const std::lock_guard<std::mutex> lock(region_);
  stop();
  start(threads);
}

void ThreadPool::start(int threads) {
  stopping_.store(false);
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
  threads_.store(threads);
}

void ThreadPool::stop() {
  stopping_.store(true);
  generation_.fetch_add(1);
  futex_wake(generation_);
  for (auto& helper : helpers_) helper.join();
  helpers_.clear();
}

void ThreadPool::run(std::int64_t total, Task task, void* context) {
  std::unique_lock<std::mutex> lock(region_, std::try_to_lock);
  if (!lock.owns_lock() || helpers_.empty() || total < 2 || total >= kClosed) {
    for (std::int64_t i = 0; i < total; ++i) task(context, i);
    return;
  }
  // The ticket is closed here (end of the last run), so no helper can claim between these stores.
  const auto count = static_cast<std::uint32_t>(total);
  task_.store(task, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  total_.store(count, std::memory_order_release);
  done_.store(0, std::memory_order_release);
  const std::uint32_t generation = generation_.load() + 1;
  ticket_.store(std::uint64_t{generation} << 32, std::memory_order_release);
  generation_.store(generation);
  if (sleepers_.load() > 0) futex_wake(generation_);
  done_.fetch_add(claim_all(), std::memory_order_acq_rel);
  await_claimed(count);
  ticket_.store(std::uint64_t{generation} << 32 | kClosed, std::memory_order_release);
}

// Claims and does tasks until none is left; returns how many. A stale helper that still holds an old ticket fails at
// the exchange: the ticket carries the generation, and it was closed before any field of the next job was written.
std::uint32_t ThreadPool::claim_all() {
  std::uint32_t finished = 0;
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const auto index = static_cast<std::uint32_t>(ticket);
    const Task task = task_.load(std::memory_order_acquire);
    void* const context = context_.load(std::memory_order_acquire);
    if (index >= total_.load(std::memory_order_acquire)) return finished;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    task(context, index);
    ++finished;
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::await_claimed(std::uint32_t total) {
  if (spin([&] { return done_.load(std::memory_order_acquire) == total; })) return;
  caller_sleeps_.store(1);
  for (;;) {
    const std::uint32_t done = done_.load();
    if (done == total) break;
    futex_wait(done_, done);
  }
  caller_sleeps_.store(0);
}

void ThreadPool::help() {
  std::uint32_t seen = 0;
  for (;;) {
    seen = await_job(seen);
    if (stopping_.load()) return;
    const std::uint32_t finished = claim_all();
    if (finished == 0) continue;
    done_.fetch_add(finished);
    if (caller_sleeps_.load() != 0) futex_wake(done_);
  }
}

std::uint32_t ThreadPool::await_job(std::uint32_t seen) {
  const auto changed = [&] { return generation_.load() != seen || stopping_.load(); };
  while (!spin(changed)) {
    sleepers_.fetch_add(1);
    while (!changed()) futex_wait(generation_, seen);
    sleepers_.fetch_sub(1);
  }
  return generation_.load();
}

}  // namespace kvroll
