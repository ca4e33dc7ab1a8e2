// flash_attention_v2.h against attention computed in double: its test configurations, both memory
// layouts, dropout, errors.
#include "flash_attention_v2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "device/dropout.h"
#include "device/float16.h"
#include "gpu/device_copy.h"
#include "support/random.h"

namespace heed::test {
namespace {

using Layout = FlashAttentionV2Layout;

struct Named {
  int batch, seq, heads, dim;
  bool causal;
  const char* name;
};

const Named kConfigs[] = {
    {1, 32, 4, 16, false, "tiny_standard"},    {1, 32, 4, 16, true, "tiny_causal"},
    {1, 64, 8, 32, false, "small_standard"},   {1, 64, 8, 32, true, "small_causal"},
    {2, 128, 8, 32, false, "medium_standard"}, {2, 128, 8, 32, true, "medium_causal"},
};

FlashAttentionV2Config ConfigOf(const Named& named, float dropout_rate = 0.0f) {
  return {named.batch, named.seq, named.heads, named.dim, named.causal, dropout_rate, 42};
}

// fp16 memory on host and device.
class Halves {
 public:
  explicit Halves(std::size_t count) : bits_(count, 0x7e00), block_(count * 2) { Upload(); }
  void FillNormal(std::uint64_t seed) {
    Random random(seed, "halves");
    for (auto& bits : bits_) bits = device::Fp32ToFp16(static_cast<float>(random.Normal()));
    Upload();
  }
  half* data() const { return static_cast<half*>(block_.data()); }
  double At(std::size_t index) const { return device::Fp16ToFp32(bits_[index]); }
  void Download() { Cuda::Get().ToHost(bits_.data(), block_.address(), bits_.size() * 2); }
  std::string damage() const { return block_.DescribeDamage(); }

 private:
  void Upload() { Cuda::Get().ToDevice(block_.address(), bits_.data(), bits_.size() * 2); }

  std::vector<device::u16> bits_;
  DeviceBlock block_;
};

// One call's tensors.
struct Tensors {
  explicit Tensors(const FlashAttentionV2Config& c)
      : rows(static_cast<std::size_t>(c.batch_size) * c.num_heads * c.seq_len),
        elems(rows * static_cast<std::size_t>(c.head_dim)),
        q(elems),
        k(elems),
        v(elems),
        o(elems),
        d_o(elems),
        dq(elems),
        dk(elems),
        dv(elems),
        l(rows) {
    std::uint64_t seed = 7;
    for (Halves* input : {&q, &k, &v, &d_o}) input->FillNormal(seed++);
  }
  void Download() {
    Cuda::Get().Synchronize();
    for (Halves* output : {&o, &dq, &dk, &dv, &l}) {
      output->Download();
      EXPECT_EQ(output->damage(), "");
    }
  }
  std::size_t rows, elems;
  Halves q, k, v, o, d_o, dq, dk, dv, l;
};

std::size_t Offset(const FlashAttentionV2Config& c, Layout layout, int b, int h, int row) {
  const auto heads = static_cast<std::size_t>(c.num_heads);
  const auto rows = static_cast<std::size_t>(c.seq_len);
  const std::size_t index = layout == Layout::kHeadsFirst
                                ? (b * heads + h) * rows + static_cast<std::size_t>(row)
                                : (b * rows + row) * heads + static_cast<std::size_t>(h);
  return index * static_cast<std::size_t>(c.head_dim);
}

// One head in double.
struct Expected {
  std::vector<double> o, dq, dk, dv, lse;
};

double KeepFactor(const FlashAttentionV2Config& c, int b, int h, int i, int j) {
  if (c.dropout_rate == 0.0f) return 1.0;
  const device::u32 threshold = device::DropThreshold(c.dropout_rate);
  const device::u32 number =
      device::DropoutNumber(c.seed, 0, static_cast<device::u32>(b * c.num_heads + h),
                            static_cast<device::u32>(i), static_cast<device::u32>(j));
  return device::IsKept(number, threshold) ? device::KeepScale<double>(threshold) : 0.0;
}

Expected ComputeHead(const FlashAttentionV2Config& c, Layout layout, const Tensors& t, int b,
                     int h) {
  const int rows = c.seq_len, dim = c.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  Expected e;
  for (auto* values : {&e.o, &e.dq, &e.dk, &e.dv}) values->assign(rows * dim, 0.0);
  const auto at = [&](const Halves& x, int row, int d) {
    return x.At(Offset(c, layout, b, h, row) + d);
  };
  for (int i = 0; i < rows; ++i) {
    const int visible = c.use_causal_mask ? i + 1 : rows;
    std::vector<double> p(visible), dp(visible);
    double sum = 0.0, delta = 0.0;
    for (int j = 0; j < visible; ++j) {
      double s = 0.0;
      for (int d = 0; d < dim; ++d) s += at(t.q, i, d) * at(t.k, j, d);
      sum += p[j] = std::exp(s * scale);
    }
    e.lse.push_back(std::log(sum));
    for (int j = 0; j < visible; ++j) {
      p[j] /= sum;
      const double keep = KeepFactor(c, b, h, i, j);
      for (int d = 0; d < dim; ++d) {
        e.o[i * dim + d] += p[j] * keep * at(t.v, j, d);
        e.dv[j * dim + d] += p[j] * keep * at(t.d_o, i, d);
        dp[j] += keep * at(t.d_o, i, d) * at(t.v, j, d);
      }
      delta += p[j] * dp[j];
    }
    for (int j = 0; j < visible; ++j) {
      const double ds = p[j] * (dp[j] - delta) * scale;
      for (int d = 0; d < dim; ++d) {
        e.dq[i * dim + d] += ds * at(t.k, j, d);
        e.dk[j * dim + d] += ds * at(t.q, i, d);
      }
    }
  }
  return e;
}

// ||actual - expected|| / ||expected|| over one head.
double RelativeError(const FlashAttentionV2Config& c, Layout layout, const Halves& actual,
                     const std::vector<double>& expected, int b, int h) {
  double error = 0.0, norm = 0.0;
  for (int row = 0; row < c.seq_len; ++row) {
    for (int d = 0; d < c.head_dim; ++d) {
      const double want = expected[row * c.head_dim + d];
      const double is = actual.At(Offset(c, layout, b, h, row) + d);
      error += (is - want) * (is - want);
      norm += want * want;
    }
  }
  return std::sqrt(error / norm);
}

// Rounding of P, of o and of l to fp16 (2^-11 each, l around 5): o 1e-3, gradients 4e-3. A NaN
// fails every comparison.
void CheckCall(const FlashAttentionV2Config& c, Layout layout) {
  Tensors t(c);
  ASSERT_EQ(flash_attention_v2_forward(t.q.data(), t.k.data(), t.v.data(), t.o.data(), t.l.data(),
                                       c, layout),
            cudaSuccess)
      << heed_last_error();
  ASSERT_EQ(
      flash_attention_v2_backward(t.q.data(), t.k.data(), t.v.data(), t.o.data(), t.l.data(),
                                  t.d_o.data(), t.dq.data(), t.dk.data(), t.dv.data(), c, layout),
      cudaSuccess)
      << heed_last_error();
  t.Download();
  for (int b = 0; b < c.batch_size; ++b) {
    for (int h = 0; h < c.num_heads; ++h) {
      const Expected e = ComputeHead(c, layout, t, b, h);
      EXPECT_LT(RelativeError(c, layout, t.o, e.o, b, h), 1e-3);
      EXPECT_LT(RelativeError(c, layout, t.dq, e.dq, b, h), 4e-3);
      EXPECT_LT(RelativeError(c, layout, t.dk, e.dk, b, h), 4e-3);
      EXPECT_LT(RelativeError(c, layout, t.dv, e.dv, b, h), 4e-3);
      for (int row = 0; row < c.seq_len; ++row) {
        const auto index = static_cast<std::size_t>((b * c.num_heads + h) * c.seq_len + row);
        EXPECT_NEAR(t.l.At(index), e.lse[row], 1e-3 * (1.0 + std::abs(e.lse[row])));
      }
    }
  }
}

TEST(GpuFlashAttentionV2, ItsTestConfigurations) {
  ASSERT_EQ(flash_attention_v2_init(), cudaSuccess) << heed_last_error();
  for (const Named& named : kConfigs) {
    SCOPED_TRACE(named.name);
    CheckCall(ConfigOf(named), Layout::kHeadsFirst);
  }
  EXPECT_EQ(flash_attention_v2_cleanup(), cudaSuccess);
}

TEST(GpuFlashAttentionV2, RowsFirstLayout) { CheckCall(ConfigOf(kConfigs[5]), Layout::kRowsFirst); }

TEST(GpuFlashAttentionV2, Dropout) {
  CheckCall(ConfigOf(kConfigs[4], 0.25f), Layout::kHeadsFirst);
  CheckCall(ConfigOf(kConfigs[5], 0.1f), Layout::kHeadsFirst);
}

TEST(GpuFlashAttentionV2, BadConfigurationsAreRefused) {
  const FlashAttentionV2Config good = ConfigOf(kConfigs[0]);
  ASSERT_TRUE(is_config_valid(good));
  std::vector<FlashAttentionV2Config> bad;
  for (int FlashAttentionV2Config::*size :
       {&FlashAttentionV2Config::batch_size, &FlashAttentionV2Config::seq_len,
        &FlashAttentionV2Config::num_heads, &FlashAttentionV2Config::head_dim}) {
    for (const int value : {0, -1}) {
      bad.push_back(good);
      bad.back().*size = value;
    }
  }
  for (const float rate : {-0.1f, 1.0f, 2.0f, std::nanf("")}) {
    bad.push_back(good);
    bad.back().dropout_rate = rate;
  }
  bad.push_back(good);
  bad.back().head_dim = 100000;
  Tensors t(good);
  for (const FlashAttentionV2Config& c : bad) {
    EXPECT_FALSE(is_config_valid(c));
    EXPECT_EQ(
        flash_attention_v2_forward(t.q.data(), t.k.data(), t.v.data(), t.o.data(), t.l.data(), c),
        cudaErrorInvalidValue);
    EXPECT_EQ(
        flash_attention_v2_backward(t.q.data(), t.k.data(), t.v.data(), t.o.data(), t.l.data(),
                                    t.d_o.data(), t.dq.data(), t.dk.data(), t.dv.data(), c),
        cudaErrorInvalidValue);
  }
  EXPECT_EQ(
      flash_attention_v2_forward(nullptr, t.k.data(), t.v.data(), t.o.data(), t.l.data(), good),
      cudaErrorInvalidValue);
  t.Download();
  EXPECT_TRUE(std::isnan(t.o.At(0))) << "a refused call must not write";
}

}  // namespace
}  // namespace heed::test
