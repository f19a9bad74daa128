// The Python face of the native kernels: handles in, nothing out. No tensor crosses here (19 us a call, 0.2 with
// handles).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "attention_plan.h"
#include "handles.h"
#include "packed_weight.h"
#include "thread_pool.h"
#include "timed.h"

namespace nb = nanobind;
using namespace nb::literals;
using kvroll::Buffer;
using kvroll::KvPool;
using kvroll::KvView;
using kvroll::PackedWeight;
using kvroll::require;
using Int = std::int64_t;

namespace {

bool cpu_has_avx2() {
#if defined(__x86_64__) && KVROLL_HAS_AVX2
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

const kvroll::KernelTable& pick_table(const std::string& isa) {
  require(isa.empty() || isa == "avx2" || isa == "plain", "instruction set must be avx2 or plain, found " + isa);
#if KVROLL_HAS_AVX2
  if (isa == "avx2" || isa.empty())
    if (cpu_has_avx2()) return kvroll::avx2::table();
#endif
  require(isa != "avx2", "this CPU (or this build) has no AVX2 with FMA and F16C");
  return kvroll::plain::table();
}

template <class T>
T* at_address(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

class Kernels {
 public:
  Kernels(const std::string& isa, int threads) : table_(pick_table(isa)), pool_(checked(threads)) {}

  std::string isa() const { return table_.isa; }
  int threads() const { return pool_.threads(); }
  double seconds() const { return seconds_; }
  void set_threads(int threads) { pool_.resize(checked(threads)); }

  PackedWeight* linear(const std::string& kind, Int outputs, Int inputs, Int block, std::uintptr_t bias) {
    require(outputs > 0 && inputs > 0, "a weight needs outputs and inputs");
    const kvroll::WeightKind of = kvroll::weight_kind_of(kind);
    require(kvroll::has_block(of, block), "a weight of " + kind + " has no blocks of " + std::to_string(block));
    return new PackedWeight(arena_, of, outputs, inputs, block, at_address<const float>(bias));
  }

  void fill(PackedWeight& weight, Int first, Int count, std::uintptr_t rows, std::uintptr_t scale,
            std::uintptr_t zero) {
    const kvroll::WeightView& view = weight.view();
    require(first >= 0 && count >= 0 && first + count <= view.outputs,
            "rows " + std::to_string(first) + " to " + std::to_string(first + count) + " are not in a weight of " +
                std::to_string(view.outputs) + " rows");
    const bool has_scale = view.block > 0 || view.element_bytes() == 1;
    require(has_scale == (scale != 0) && (view.kind == kvroll::WeightKind::kInt4) == (zero != 0),
            "the rows of this weight have other scales");
    weight.fill(
        {first, count, at_address<const void>(rows), at_address<const void>(scale), at_address<const void>(zero)});
  }

  void gemm(const PackedWeight& weight, const Buffer& x, const Buffer& out, Int rows) {
    const kvroll::Timed timed(seconds_);
    const kvroll::WeightView& view = weight.view();
    const float* from = x.floats(rows * view.inputs, "x");
    float* to = out.floats(rows * view.outputs, "out");
    require(from != to, "x and out must not be the same memory");
    block_sums_.resize(std::max(block_sums_.size(), static_cast<std::size_t>(rows * view.block_count())));
    table_.gemm[static_cast<int>(view.kind)]({view, from, to, rows, block_sums_.data()}, pool_);
  }

  void embed(const PackedWeight& table, const Buffer& ids, const Buffer& out, Int rows) {
    const kvroll::Timed timed(seconds_);
    const kvroll::WeightView& view = table.view();
    const std::int32_t* tokens = ids.ints(rows, "token ids");
    kvroll::require_range(tokens, rows, 0, view.outputs, "token id");
    table_.embed(view, tokens, out.floats(rows * view.inputs, "out"), rows, pool_);
  }

  void rms_norm(const Buffer& x, const Buffer& weight, const Buffer& out, Int rows, float eps) {
    const kvroll::Timed timed(seconds_);
    const Int n = weight.count;
    table_.rms_norm(x.floats(rows * n, "x"), weight.floats(n, "weight"), out.floats(rows * n, "out"), rows, n, eps,
                    pool_);
  }

  void head_norm(const Buffer& x, const Buffer& weight, Int rows, Int heads, Int row_stride, Int offset, float eps) {
    const kvroll::Timed timed(seconds_);
    const Int n = weight.count;
    require(n > 0 && heads >= 0 && offset >= 0 && offset + heads * n <= row_stride,
            "the heads to norm must lie inside a row");
    table_.head_norm(
        {x.floats(rows * row_stride, "x"), weight.floats(n, "weight"), rows, heads, n, row_stride, offset, eps}, pool_);
  }

  void add(const Buffer& x, const Buffer& y, Int rows) {
    const kvroll::Timed timed(seconds_);
    const Int count = rows * x.last_dim;
    table_.add(x.floats(count, "x"), y.floats(count, "y"), count);
  }

  void silu_mul(const Buffer& gate_up, const Buffer& out, Int rows) {
    const kvroll::Timed timed(seconds_);
    const Int n = gate_up.last_dim / 2;
    table_.silu_mul(gate_up.floats(rows * 2 * n, "gate_up"), out.floats(rows * n, "out"), rows, n, pool_);
  }

  void rope(const Buffer& x, const Buffer& positions, const Buffer& cos, const Buffer& sin, Int rows, Int heads,
            Int head_dim, Int row_stride, Int offset) {
    const kvroll::Timed timed(seconds_);
    require(head_dim > 0 && head_dim % 2 == 0 && heads >= 0 && offset >= 0 && offset + heads * head_dim <= row_stride,
            "the rotated heads must lie inside a row and head_dim must be even");
    const Int max_len = cos.count / (head_dim / 2);
    const std::int32_t* where = positions.ints(rows, "positions");
    kvroll::require_range(where, rows, 0, max_len, "position");
    table_.rope({x.floats(rows * row_stride, "x"), where, cos.floats(max_len * head_dim / 2, "cos"),
                 sin.floats(max_len * head_dim / 2, "sin"), rows, heads, head_dim, row_stride, offset},
                pool_);
  }

  void kv_write(const KvPool& bound, Int layer, const Buffer& qkv, Int rows, Int row_stride, Int k_offset, Int v_offset,
                const Buffer& page_ids, const Buffer& slots) {
    const kvroll::Timed timed(seconds_);
    const KvView& pool = bound.written();
    const Int width = pool.kv_heads * pool.head_dim;
    require(layer >= 0 && layer < pool.layers, "layer is not in the pool");
    require(k_offset >= 0 && v_offset >= 0 && k_offset + width <= row_stride && v_offset + width <= row_stride,
            "K and V must lie inside a row");
    const std::int64_t* pages = page_ids.longs(rows, "page ids");
    const std::int32_t* tokens = slots.ints(rows, "slots");
    kvroll::require_range(pages, rows, 0, pool.num_pages, "page id");
    kvroll::require_range(tokens, rows, 0, kvroll::kPageTokens, "slot");
    table_.kv_write(
        {pool, layer, qkv.floats(rows * row_stride, "qkv"), rows, row_stride, k_offset, v_offset, pages, tokens},
        pool_);
  }

  void kivi_seal(const KvPool& pool, const Buffer& open_page_ids, const Buffer& page_ids, Int count) {
    const kvroll::Timed timed(seconds_);
    require(pool.pages.sealed(), "pages of this format are not sealed; kivi_seal takes kivi4 or kivi2");
    const std::int64_t* from = open_page_ids.longs(count, "open page ids");
    const std::int64_t* to = page_ids.longs(count, "page ids");
    kvroll::require_range(from, count, 0, pool.open.num_pages, "open page id");
    kvroll::require_range(to, count, 0, pool.pages.num_pages, "page id");
    table_.kivi_seal({pool.pages, pool.open, from, to, count}, pool_);
  }

  void paged_attention(const KvPool& bound, Int layer, const Buffer& q, Int q_row_stride, const Buffer& out, Int rows,
                       Int heads, const Buffer& page_table, Int max_pages, const Buffer& row_sequence,
                       const Buffer& row_length, float scale, Int window, const Buffer* sinks,
                       const Buffer* open_table) {
    const kvroll::Timed timed(seconds_);
    const KvView& pool = bound.pages;
    require(pool.sealed() == (open_table != nullptr),
            "an open table belongs to the sealed formats, and to every call of theirs");
    require(open_table == nullptr || open_table->count >= page_table.count, "the open table is smaller than the table");
    require(layer >= 0 && layer < pool.layers, "layer is not in the pool");
    require(heads > 0 && heads % pool.kv_heads == 0 && heads * pool.head_dim <= q_row_stride,
            "query heads must be a multiple of the KV heads and lie inside a row");
    require(max_pages > 0 && window >= 0 && rows < (Int{1} << 31) && rows >= 0,
            "max_pages, window or rows is out of range");
    kvroll::AttentionCall call{pool,
                               bound.open,
                               bound.residual_tokens,
                               open_table == nullptr ? nullptr : open_table->longs(0, "open table"),
                               layer,
                               q.floats(rows * q_row_stride, "q"),
                               q_row_stride,
                               out.floats(rows * heads * pool.head_dim, "out"),
                               heads,
                               page_table.longs(0, "page table"),
                               max_pages,
                               row_sequence.ints(rows, "row_sequence"),
                               row_length.ints(rows, "row_length"),
                               scale,
                               window,
                               sinks == nullptr ? nullptr : sinks->floats(heads, "sinks"),
                               nullptr,
                               0,
                               nullptr,
                               nullptr};
    kvroll::require_readable(call, rows, page_table.count / max_pages);
    plan_.prepare(call, rows);
    table_.paged_attention(call, pool_);
  }

  void transcode(std::uintptr_t source, const std::string& source_format, std::uintptr_t target,
                 const std::string& target_format, Int layers, Int kv_heads, Int head_dim) const {
    const auto page = [&](std::uintptr_t address, const std::string& format) {
      return kvroll::kv_view(at_address<std::uint8_t>(address), 1, Int{1} << 40, format, layers, kv_heads, head_dim);
    };
    table_.transcode(page(source, source_format), page(target, target_format));
  }

  // Runs `regions` empty-bodied regions that count their tasks; for the stress test. Returns the tasks that ran.
  Int count_tasks(Int regions, Int tasks) {
    std::atomic<Int> ran{0};
    for (Int region = 0; region < regions; ++region)
      kvroll::parallel(pool_, tasks, [&](Int) { ran.fetch_add(1, std::memory_order_relaxed); });
    return ran.load();
  }

 private:
  static int checked(int threads) {
    require(threads >= 1 && threads <= 1024, "num_threads must be in [1, 1024], found " + std::to_string(threads));
    return threads;
  }

  const kvroll::KernelTable& table_;
  kvroll::Arena arena_;
  kvroll::AttentionPlan plan_;
  std::vector<float> block_sums_;
  double seconds_ = 0;  // inside the calls of a step, which come one after the other
  kvroll::ThreadPool pool_;
};

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "C++ kernels of kvroll; use through kvroll_kernels.dispatch";
  module.attr("BUILD_HASH") = KVROLL_BUILD_HASH;
  module.def("cpu_has_avx2", &cpu_has_avx2);
  module.def("advise_huge_pages", &kvroll::advise_huge_pages, "address"_a, "num_bytes"_a);

  nb::class_<Buffer>(module, "Buffer", nb::dynamic_attr())
      .def(
          "__init__",
          [](Buffer* self, std::uintptr_t address, Int count, Int last_dim, const std::string& dtype) {
            new (self) Buffer{at_address<void>(address), count, last_dim, kvroll::dtype_of(dtype)};
          },
          "address"_a, "count"_a, "last_dim"_a, "dtype"_a);
  nb::class_<PackedWeight>(module, "Linear", nb::dynamic_attr())
      .def_prop_ro("outputs", [](const PackedWeight& weight) { return weight.view().outputs; })
      .def_prop_ro("inputs", [](const PackedWeight& weight) { return weight.view().inputs; });
  nb::class_<KvPool>(module, "KvPool", nb::dynamic_attr())
      .def(
          "__init__",
          [](KvPool* self, std::uintptr_t address, Int num_pages, Int page_stride, const std::string& format,
             Int layers, Int kv_heads, Int head_dim, std::uintptr_t open_address, Int open_pages, Int open_stride,
             Int residual_tokens) {
            const auto view = [&](std::uintptr_t at, Int pages, Int stride, const std::string& kind) {
              return kvroll::kv_view(at_address<std::uint8_t>(at), pages, stride, kind, layers, kv_heads, head_dim);
            };
            const KvView pages = view(address, num_pages, page_stride, format);
            require(pages.sealed() == (open_address != 0), "open pages belong to the sealed formats");
            const KvView open = pages.sealed() ? view(open_address, open_pages, open_stride, "bf16") : KvView{};
            new (self) KvPool{pages, open, residual_tokens};
          },
          "address"_a, "num_pages"_a, "page_stride"_a, "kv_format"_a, "layers"_a, "kv_heads"_a, "head_dim"_a,
          "open_address"_a, "open_pages"_a, "open_stride"_a, "residual_tokens"_a);

  // Every call that computes leaves the GIL to others.
  using Free = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Kernels>(module, "Kernels")
      .def(nb::init<const std::string&, int>(), "isa"_a, "threads"_a)
      .def_prop_ro("isa", &Kernels::isa)
      .def_prop_ro("threads", &Kernels::threads)
      .def_prop_ro("seconds", &Kernels::seconds)
      .def("set_threads", &Kernels::set_threads, Free())
      .def("linear", &Kernels::linear, Free(), nb::rv_policy::take_ownership)
      .def("fill", &Kernels::fill, Free())
      .def("gemm", &Kernels::gemm, Free())
      .def("embed", &Kernels::embed, Free())
      .def("rms_norm", &Kernels::rms_norm, Free())
      .def("head_norm", &Kernels::head_norm, Free())
      .def("add", &Kernels::add, Free())
      .def("silu_mul", &Kernels::silu_mul, Free())
      .def("rope", &Kernels::rope, Free())
      .def("kv_write", &Kernels::kv_write, Free())
      .def("paged_attention", &Kernels::paged_attention, "pool"_a, "layer"_a, "q"_a, "q_row_stride"_a, "out"_a,
           "rows"_a, "heads"_a, "page_table"_a, "max_pages"_a, "row_sequence"_a, "row_length"_a, "scale"_a, "window"_a,
           "sinks"_a.none(), "open_table"_a.none(), Free())
      .def("kivi_seal", &Kernels::kivi_seal, Free())
      .def("transcode", &Kernels::transcode, Free())
      .def("count_tasks", &Kernels::count_tasks, Free());
}
