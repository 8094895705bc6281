// Text as Python writes it, where files and their names follow Keras.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace pl {

// repr(float): the shortest text that reads back to the same bits, "0.1", "1e-05", "nan".
std::string python_repr(double value);

// str.format with named numbers: "{epoch:02d}-{val_loss:.2f}.safetensors". Types d, f, e, g, % and
// none, with width, 0 and precision. Throws UserError naming what is not there or not understood.
std::string python_format(const std::string& text, const std::map<std::string, int64_t>& integers,
                          const std::map<std::string, double>& reals);

}  // namespace pl
