#include "cli/data_page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "data/image/encode_png.h"

namespace pl {
namespace {

constexpr int64_t kSide = 128;   // of a picture, at most
constexpr int64_t kNumbers = 8;  // of a field that is no image

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Bytes of records may be anything; what is not ASCII would need to be UTF-8.
        out += c >= ' ' && c < 127 ? c : '.';
    }
  }
  return out;
}

double number_at(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case Dtype::float32:
      return tensor.data_as<float>()[i];
    case Dtype::float64:
      return tensor.data_as<double>()[i];
    case Dtype::int32:
      return tensor.data_as<int32_t>()[i];
    case Dtype::int64:
      return static_cast<double>(tensor.data_as<int64_t>()[i]);
    case Dtype::uint8:
    case Dtype::boolean:
      return tensor.data_as<uint8_t>()[i];
    default:
      return std::nan("");
  }
}

bool is_image(const Shape& shape, Dtype dtype) {
  return (dtype == Dtype::uint8 || dtype == Dtype::float32) && shape.rank() == 3 &&
         (shape[2] == 1 || shape[2] == 3) && shape[0] > 1 && shape[1] > 1;
}

// Elements [first, first + shape.elements()) of the tensor as a picture: every n-th pixel. float32
// is from 0 to 1, or to 255 if something is above 1.
std::string picture(const Tensor& tensor, int64_t first, const Shape& shape) {
  const int64_t step = (std::max(shape[0], shape[1]) + kSide - 1) / kSide;
  const ImageSize size{(shape[0] + step - 1) / step, (shape[1] + step - 1) / step};
  const auto at = [&](int64_t y, int64_t x, int64_t c) {
    return number_at(tensor, first + (y * step * shape[1] + x * step) * shape[2] + c);
  };
  double most = 0;
  for (int64_t i = 0; tensor.dtype() == Dtype::float32 && i < shape.elements(); ++i)
    most = std::max(most, number_at(tensor, first + i));
  const double scale = tensor.dtype() == Dtype::float32 && most <= 1 ? 255 : 1;
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < size.height; ++y)
    for (int64_t x = 0; x < size.width; ++x)
      for (int64_t c = 0; c < shape[2]; ++c) {
        const double value = at(y, x, c) * scale;
        pixels.push_back(std::isnan(value) ? 0
                                           : static_cast<uint8_t>(std::clamp(value, 0.0, 255.0)));
      }
  return encode_png(pixels.data(), size, static_cast<int>(shape[2]));
}

std::string numbers(const Tensor& tensor, int64_t first, int64_t count) {
  std::string text;
  for (int64_t i = 0; i < std::min(count, kNumbers); ++i) {
    char number[32];
    std::snprintf(number, sizeof(number), "%.6g", number_at(tensor, first + i));
    text += (i > 0 ? ", " : "") + std::string(number);
  }
  return text + (count > kNumbers ? ", ..." : "");
}

std::string cell(const std::string& text, bool number = false) {
  return (number ? "<td class=n>" : "<td>") + escaped(text) + "</td>";
}

std::string stage_table(const PipelineReport& report) {
  int64_t longest = 1;
  for (const StageReport& stage : report.stages) longest = std::max(longest, stage.waited_ns);
  std::string out =
      "<table><tr><th>stage<th>elements are<th class=n>elements<th class=n>floor"
      "<th class=n>one element<th class=n>at once<th class=n>held ahead<th class=n>waited<th></tr>";
  const auto some = [](int64_t value) { return value > 0 ? std::to_string(value) : std::string(); };
  for (const StageReport& stage : report.stages) {
    char waited[32], bar[96];
    std::snprintf(waited, sizeof(waited), "%.1f ms", static_cast<double>(stage.waited_ns) / 1e6);
    std::snprintf(bar, sizeof(bar), "<td><div class=bar style=\"width:%.0fpx\"></div></td>",
                  120.0 * static_cast<double>(stage.waited_ns) / static_cast<double>(longest));
    out += "<tr>" + cell(stage.name + (stage.options.empty() ? "" : "(" + stage.options + ")")) +
           cell(stage.spec) + cell(std::to_string(stage.elements), true) +
           cell(format_bytes(stage.floor), true) + cell(format_bytes(stage.element_bytes), true) +
           cell(some(stage.parallel), true) + cell(some(stage.held_peak), true) +
           cell(stage.waited_ns > 0 ? waited : "", true) + bar + "</tr>";
    for (const std::string& message : stage.messages)
      out += "<tr><td colspan=9 class=skipped>skipped: " + escaped(message) + "</td></tr>";
  }
  return out + "</table>";
}

constexpr const char* kHead =
    "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport "
    "content=\"width=device-width\"><style>"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;"
    "color:#222;background:#fff}"
    "h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}"
    "table{border-collapse:collapse;font-size:13px}th,td{padding:.25em .7em;text-align:left;"
    "border-bottom:1px solid #ddd}.n{text-align:right;font-variant-numeric:tabular-nums}"
    ".bar{height:.8em;background:#4a78b8}.skipped{color:#a33}"
    ".batch{display:flex;flex-wrap:wrap;gap:.6em}figure{margin:0;width:128px}"
    "img{max-width:128px;image-rendering:pixelated;min-width:64px}"
    "figcaption{font-size:12px;overflow-wrap:anywhere}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}}"
    "</style>";

}  // namespace

std::vector<SampleView> view_samples(const ElementSpec& spec, const Element& element, bool batched,
                                     size_t most) {
  std::vector<SampleView> views;
  const int64_t rows = batched ? element[0].shape()[0] : 1;
  for (int64_t r = 0; r < std::min<int64_t>(rows, static_cast<int64_t>(most)); ++r) {
    SampleView view;
    for (size_t f = 0; f < element.size(); ++f) {
      const Tensor& tensor = element[f];
      const Shape shape = batched ? tensor.shape().without_front() : tensor.shape();
      const int64_t count = shape.elements(), first = r * count;
      if (view.png.empty() && is_image(shape, tensor.dtype())) {
        view.png = picture(tensor, first, shape);
        continue;
      }
      view.text += (view.text.empty() ? "" : "; ") + spec.fields[f].name + ": ";
      const bool text = tensor.dtype() == Dtype::uint8 && shape.rank() == 1 &&
                        spec.fields[f].shape.back() == kUnknown;
      if (text) {
        std::string line(tensor.data_as<const char>() + first,
                         static_cast<size_t>(std::min<int64_t>(count, 64)));
        line.resize(line.find_last_not_of('\0') + 1);  // what padding added
        view.text += line;
      } else {
        view.text += numbers(tensor, first, count);
      }
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::string to_html(const DataPage& page) {
  char figures[160];
  std::snprintf(figures, sizeof(figures), "%lld samples in %.2f s: %.0f a second",
                static_cast<long long>(page.samples), page.seconds, page.rate);
  const LedgerFigures& ledger = page.report.ledger;
  std::string out = kHead + ("<title>" + escaped(page.source)) + "</title></head><body><h1>" +
                    escaped(page.source) + "</h1><p>" + figures;
  if (!page.limited_by.empty()) out += "; limited by <b>" + escaped(page.limited_by) + "</b>";
  out += "</p><p>Memory: " + format_bytes(ledger.payload_peak) + " at most, of " +
         format_bytes(ledger.budget) + " (" + format_bytes(ledger.floor) + " for one at a time, " +
         format_bytes(ledger.ahead_peak) + " lent for working ahead), " +
         std::to_string(page.report.threads) + " threads.</p><h2>Stages</h2>" +
         stage_table(page.report);
  for (size_t b = 0; b < page.batches.size(); ++b) {
    out += "<h2>Batch " + std::to_string(b) + "</h2><div class=batch>";
    for (const SampleView& view : page.batches[b]) {
      out += "<figure>";
      if (!view.png.empty())
        out += "<img alt=\"\" src=\"data:image/png;base64," + base64(view.png) + "\">";
      out += "<figcaption>" + escaped(view.text) + "</figcaption></figure>";
    }
    out += "</div>";
  }
  return out + "</body></html>\n";
}

}  // namespace pl
