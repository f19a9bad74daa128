#pragma once

#include <chrono>

namespace kvroll {

// Adds the life of a scope to a sum of seconds.
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum), began_(Clock::now()) {}
  ~Timed() { sum_ += std::chrono::duration<double>(Clock::now() - began_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& sum_;
  Clock::time_point began_;
};

}  // namespace kvroll
