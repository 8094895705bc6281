#include "base/cache_folder.h"

#include <cstdlib>

namespace pl {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string cache_folder() {
  if (const std::string own = environment("PLIMSOLL_CACHE"); !own.empty()) return own;
  // Relative paths are to be ignored, says the XDG specification.
  const std::string xdg = environment("XDG_CACHE_HOME");
  if (xdg.starts_with('/')) return xdg + "/plimsoll";
  const std::string home = environment("HOME");
  return home.starts_with('/') ? home + "/.cache/plimsoll" : "";
}

}  // namespace pl
