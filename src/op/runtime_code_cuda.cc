#include <filesystem>
#include <fstream>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_libraries.h"
#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "op/cuda/runtime_code.h"

namespace pl::cuda {
namespace {

class Library final : public RuntimeCode {
 public:
  explicit Library(std::vector<char> code) : code_(std::move(code)) {
    cuda_check(
        cudaLibraryLoadData(&library_, code_.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "load code");
  }
  ~Library() override { cudaLibraryUnload(library_); }
  const void* function(const std::string& name) override {
    cudaKernel_t kernel = nullptr;
    cuda_check(cudaLibraryGetKernel(&kernel, library_, name.c_str()), name.c_str());
    return reinterpret_cast<const void*>(kernel);
  }

 private:
  std::vector<char> code_;
  cudaLibrary_t library_ = nullptr;
};

std::vector<char> translate(const NvrtcApi& api, const std::string& source,
                            const std::string& architecture) {
  nvrtcProgram program = nullptr;
  auto check = [&](nvrtcResult result, const char* what) {
    if (result == NVRTC_SUCCESS) return;
    std::string log;
    size_t size = 0;
    if (program && api.log_size(program, &size) == NVRTC_SUCCESS && size > 1) {
      log.resize(size);
      api.log(program, log.data());
    }
    throw BackendError("[nvrtc] " + std::string(what) + ": " + std::to_string(result) + " " + log);
  };
  check(api.create_program(&program, source.c_str(), "plimsoll.cu", 0, nullptr, nullptr), "source");
  const std::string target = "--gpu-architecture=" + architecture;
  const char* options[] = {target.c_str(), "--std=c++17", "--fmad=true"};
  check(api.compile_program(program, 3, options), "compile");
  size_t size = 0;
  check(api.cubin_size(program, &size), "size of code");
  std::vector<char> code(size);
  check(api.cubin(program, code.data()), "code");
  api.destroy_program(&program);
  return code;
}

// In front of the code.
struct CodeHeader {
  uint64_t identity = 0, code = 0;
  bool operator==(const CodeHeader&) const = default;
};
CodeHeader header_of(const std::string& identity, std::string_view code) {
  return {xxh3(identity), xxh3(code)};
}

}  // namespace

std::vector<char> read_code(const std::string& path, const std::string& identity) {
  constexpr uintmax_t kMost = 64 * kMiB;
  std::error_code none;
  if (const uintmax_t size = std::filesystem::file_size(path, none); none || size > kMost)
    return {};
  std::ifstream file(path, std::ios::binary);
  CodeHeader header;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return {};
  std::vector<char> code{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (header != header_of(identity, {code.data(), code.size()})) return {};
  return code;
}

void write_code(const std::string& path, const std::string& identity,
                const std::vector<char>& code) {
  const CodeHeader header = header_of(identity, {code.data(), code.size()});
  try {
    make_directories(folder_of(path));
    write_file_atomically(path, [&](FileWriter& file) {
      file.write(&header, sizeof header);
      file.write(code.data(), static_cast<Bytes>(code.size()));
    });
  } catch (const Error&) {  // it is made again next time
  }
}

std::shared_ptr<RuntimeCode> compile(Backend& backend, const std::string& source) {
  auto& device = static_cast<CudaBackend&>(backend);
  const NvrtcApi& api = device.libraries().nvrtc();
  int major = 0, minor = 0;
  api.version(&major, &minor);
  const std::string architecture = "sm_" + std::to_string(device.compute_capability());
  const std::string identity = architecture + " nvrtc " + std::to_string(major) + "." +
                               std::to_string(minor) + "\n" + source;
  const std::string folder = cache_folder();
  const std::string path =
      folder.empty() ? ""
                     : folder + "/kernels/" + architecture + "-" + hex16(xxh3(identity)) + ".cubin";
  return std::static_pointer_cast<RuntimeCode>(device.shared("code " + identity, [&] {
    auto load = [](std::vector<char> code) {
      return std::static_pointer_cast<void>(
          std::shared_ptr<RuntimeCode>(std::make_shared<Library>(std::move(code))));
    };
    if (std::vector<char> code = path.empty() ? std::vector<char>() : read_code(path, identity);
        !code.empty())
      try {
        return load(std::move(code));
      } catch (const DeviceFault&) {  // of an op before
        throw;
      } catch (const BackendError&) {  // of no use here, whole as it is: it is made again
        remove_file(path);
      }
    std::vector<char> code = translate(api, source, architecture);
    if (!path.empty()) write_code(path, identity, code);
    return load(std::move(code));
  }));
}

}  // namespace pl::cuda
