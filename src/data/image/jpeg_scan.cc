#include "data/image/jpeg_scan.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pl {
namespace {

constexpr int kWindow = 11;  // bits that a table looks at
constexpr int kEntries = 1 << kWindow;
constexpr size_t kBehind = 32;  // bytes behind rows that may be read
constexpr const char* kBadCode = "damaged: a code that no table has";

// Codes longer than the window are found by their numbers.
class LongCodes {
 public:
  explicit LongCodes(const HuffmanCodes& codes) : codes_(codes) {
    int32_t code = 0, at = 0;
    for (int length = 1; length <= 16; ++length) {
      const int32_t count = codes.counts[static_cast<size_t>(length)];
      first_[length] = code;
      index_[length] = at;
      code += count;
      at += count;
      if (code > 1 << length || at > 256) throw ScanDamage{"damaged: a table of too many codes"};
      end_[length] = code;
      code <<= 1;
    }
  }
  // Of 16 bits; the length of the code is put to `length`.
  int symbol(uint32_t bits, int& length) const {
    for (length = 1; length <= 16; ++length) {
      const auto code = static_cast<int32_t>(bits >> (16 - length));
      if (code >= first_[length] && code < end_[length])
        return codes_.symbols[static_cast<size_t>(index_[length] + code - first_[length])];
    }
    throw ScanDamage{kBadCode};
  }

 private:
  const HuffmanCodes codes_;
  int32_t first_[17] = {}, end_[17] = {}, index_[17] = {};
};

// What some bits at the front of the window say.
struct Entry {
  uint8_t length = 0;   // of the code; 0: longer than the window
  uint8_t bits = 0;     // of the code and the number behind it
  uint8_t advance = 0;  // coefficients that are passed
  uint8_t end = 0;      // 1: the block ends here
};

Entry entry_of(int symbol, int length) {
  const int run = symbol >> 4, size = symbol & 15;
  Entry entry{static_cast<uint8_t>(length), static_cast<uint8_t>(length + size), 0, 0};
  if (size > 0 || run == 15)
    entry.advance = static_cast<uint8_t>(run + 1);
  else
    entry.end = 1;
  return entry;
}

// One symbol, or as many as the window shows.
struct SkipTable {
  explicit SkipTable(const HuffmanCodes& codes) : long_codes(codes), one(kEntries), many(kEntries) {
    int at = 0;
    uint32_t code = 0;
    for (int length = 1; length <= kWindow; ++length, code <<= 1)
      for (int k = 0; k < codes.counts[static_cast<size_t>(length)]; ++k, ++code, ++at) {
        const Entry entry = entry_of(codes.symbols[static_cast<size_t>(at)], length);
        std::fill_n(one.begin() + (code << (kWindow - length)), 1 << (kWindow - length), entry);
      }
    for (int i = 0; i < kEntries; ++i) many[static_cast<size_t>(i)] = joined(i);
  }
  Entry joined(int window) const {
    Entry sum = one[static_cast<size_t>(window)];
    while (sum.length > 0 && !sum.end && sum.bits < kWindow) {
      const Entry next = one[static_cast<size_t>((window << sum.bits) & (kEntries - 1))];
      if (next.length == 0 || sum.bits + next.length > kWindow) break;
      sum.bits = static_cast<uint8_t>(sum.bits + next.bits);
      sum.advance = static_cast<uint8_t>(sum.advance + next.advance);
      sum.end = next.end;
    }
    return sum;
  }

  LongCodes long_codes;
  std::vector<Entry> one, many;
};

// Bits of the scan without stuffing. Behind its end, or a marker, come zeros.
class Bits {
 public:
  Bits(std::span<const uint8_t> begin, const ScanInput& more)
      : more_(more), buffer_(std::max(kPiece, begin.size() + kAhead)) {
    std::copy(begin.begin(), begin.end(), buffer_.begin());
    at_ = buffer_.data();
    end_ = at_ + begin.size();
  }

  // 48 bits or more.
  void fill() {
    if (count_ > 48) return;
    if (end_ - at_ >= 8) {
      uint64_t next;
      std::memcpy(&next, at_, 8);
      // No byte of all ones among them: no stuffing and no marker.
      if (((~next - 0x0101010101010101u) & next & 0x8080808080808080u) == 0) {
        if constexpr (std::endian::native == std::endian::little) next = __builtin_bswap64(next);
        const int bytes = (64 - count_) >> 3;
        // What does not count yet is the same when it comes again.
        bits_ |= next >> count_;
        at_ += bytes;
        count_ += 8 * bytes;
        return;
      }
    }
    fill_slowly();
  }
  uint32_t peek(int count) const { return static_cast<uint32_t>(bits_ >> (64 - count)); }
  void skip(int count) {
    bits_ <<= count;
    count_ -= count;
  }
  // A number of so many bits as JPEG has it: those that begin with 0 are negative. 0 to 15 bits.
  int32_t number(int size) {
    if (size == 0) return 0;
    const auto value = static_cast<int32_t>(peek(size));
    skip(size);
    return value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
  }
  // Throws when more was taken than there was.
  void check() const {
    if (count_ >= padding_) return;
    throw ScanDamage{at_ == end_ ? kEnds : "damaged: a scan that is too short"};
  }
  // Passes over the restart marker of this number.
  void restart(int number) {
    if (count_ - padding_ >= 8) throw ScanDamage{"damaged: bytes before a restart"};
    bits_ = 0;
    count_ = padding_ = 0;
    int byte = next();
    if (byte != 0xFF) throw ScanDamage{"damaged: no restart where one must be"};
    while (byte == 0xFF) byte = next();
    if (byte != 0xD0 + number) throw ScanDamage{"damaged: another restart than the next"};
  }

 private:
  static constexpr size_t kPiece = 128 * 1024, kAhead = 16;
  static constexpr const char* kEnds = "the file ends in the middle";

  // What is left goes to the front, more behind it.
  void load() {
    const auto left = static_cast<size_t>(end_ - at_);
    std::memmove(buffer_.data(), at_, left);
    const size_t got = more_(buffer_.data() + left, buffer_.size() - left);
    at_ = buffer_.data();
    end_ = at_ + left + got;
    ended_ = got == 0;
  }
  int next() {
    if (at_ == end_ && !ended_) load();
    if (at_ == end_) throw ScanDamage{kEnds};
    return *at_++;
  }
  void fill_slowly() {
    while (end_ - at_ < static_cast<ptrdiff_t>(kAhead) && !ended_) load();
    while (count_ <= 56) {
      uint64_t byte = 0;
      if (at_ == end_ || (*at_ == 0xFF && (end_ - at_ < 2 || at_[1] != 0))) {
        padding_ += 8;
      } else {
        byte = *at_++;
        if (byte == 0xFF) ++at_;
      }
      bits_ |= byte << (56 - count_);
      count_ += 8;
    }
  }

  const ScanInput& more_;
  std::vector<uint8_t> buffer_;
  const uint8_t *at_ = nullptr, *end_ = nullptr;
  uint64_t bits_ = 0;  // from the top
  int count_ = 0, padding_ = 0;
  bool ended_ = false;
};

// One symbol's entry, wherever it is found.
Entry one_symbol(const SkipTable& table, Bits& bits) {
  bits.fill();
  const Entry entry = table.one[bits.peek(kWindow)];
  if (entry.length > 0) return entry;
  int length = 0;
  const int symbol = table.long_codes.symbol(bits.peek(16), length);
  return entry_of(symbol, length);
}

void skip_block(const SkipTable& table, Bits& bits) {
  for (int k = 1; k < 64;) {
    bits.fill();
    const Entry many = table.many[bits.peek(kWindow)];
    if (many.length > 0 && k + many.advance < 64) {
      bits.skip(many.bits);
      if (many.end) return;
      k += many.advance;
      continue;
    }
    // Near the end of the block one at a time: what follows may be the next block's.
    const Entry one = one_symbol(table, bits);
    bits.skip(one.bits);
    if (one.end) return;
    k += one.advance;
  }
}

struct Component {
  explicit Component(const ScanComponent& from) : shape(from), dc(from.dc), ac(from.ac) {
    int codes = 0;
    for (const uint8_t count : from.dc.counts) codes += count;
    for (int i = 0; i < codes; ++i)
      if (from.dc.symbols[static_cast<size_t>(i)] > 15) throw ScanDamage{kBadCode};
  }
  uint8_t mean(Bits& bits) {
    const Entry entry = one_symbol(dc, bits);
    bits.skip(entry.length);
    bits.fill();
    last = static_cast<int16_t>(last + bits.number(entry.bits - entry.length));
    skip_block(ac, bits);
    return static_cast<uint8_t>(std::clamp(((last * shape.step + 4) >> 3) + 128, 0, 255));
  }

  const ScanComponent& shape;
  SkipTable dc, ac;
  int32_t last = 0;
  std::vector<uint8_t> samples;  // (shape.down, stride)
};

}  // namespace

void scan_means(const ScanShape& shape, std::span<const uint8_t> begin, const ScanInput& more,
                const ScanRows& rows) {
  std::vector<Component> components;
  components.reserve(shape.components.size());
  for (const ScanComponent& component : shape.components) {
    components.emplace_back(component);
    components.back().samples.resize(
        static_cast<size_t>(component.down * component.across * shape.units_across) + kBehind);
  }
  Bits bits(begin, more);
  int64_t until_restart = shape.restart_interval;
  int restarts = 0;
  for (int64_t row = 0; row < shape.units_down; ++row) {
    for (int64_t unit = 0; unit < shape.units_across; ++unit) {
      if (shape.restart_interval > 0 && until_restart-- == 0) {
        bits.restart(restarts++ & 7);
        until_restart = shape.restart_interval - 1;
        for (Component& component : components) component.last = 0;
      }
      for (Component& component : components) {
        const int64_t across = component.shape.across, stride = across * shape.units_across;
        for (int64_t y = 0; y < component.shape.down; ++y)
          for (int64_t x = 0; x < across; ++x)
            component.samples[static_cast<size_t>(y * stride + unit * across + x)] =
                component.mean(bits);
      }
      bits.check();
    }
    for (size_t c = 0; c < components.size(); ++c)
      rows(c, components[c].samples.data(), components[c].shape.down,
           components[c].shape.across * shape.units_across);
  }
}

Bytes scan_means_bytes(const ScanShape& shape) {
  Bytes bytes = 132 * kKiB;
  for (const ScanComponent& component : shape.components)
    bytes += 4 * kEntries * static_cast<Bytes>(sizeof(Entry)) + 2 * kKiB +
             component.across * component.down * shape.units_across + 64;
  return bytes;
}

}  // namespace pl
