// Training from a folder of photographs, as a user does it.
#include <filesystem>
#include <fstream>

#include "tests/end_to_end/command.h"
#include "tests/image_files.h"

namespace pl::test::folder_train_test {
namespace {

// 2 classes of 5 JPEGs, each of another size.
void make_photos(const TempFolder& folder) {
  for (const char* name : {"cat", "dog"}) {
    std::filesystem::create_directory(folder / name);
    for (int i = 0; i < 5; ++i) {
      const int64_t height = 230 + 37 * i, width = 400 - 31 * i;
      std::ofstream(folder / name + "/" + std::to_string(i) + ".jpg", std::ios::binary)
          << test::jpeg(test::gradient(height, width), height, width, 3, i == 3);
    }
  }
}

TEST(FolderTraining, Resnet18OnPhotographsWithinItsMemory) {
  const TempFolder folder, run;
  make_photos(folder);
  const Finished done =
      plimsoll({"train", "resnet18", "--data", folder.path(), "--input", "224x224x3", "--memory",
                "2GiB", "--batch", "2", "--steps", "2", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const Json end = done.event("end");
  EXPECT_EQ(integer_at(end, "steps"), 2);
  EXPECT_LE(integer_at(end, "process_bytes_peak"), integer_at(end, "process_bytes_planned"));
  EXPECT_LE(integer_at(end, "process_bytes_planned"), int64_t{2} << 30);
}

TEST(FolderTraining, AFileThatIsNoImageIsNamedBeforeTheFirstStep) {
  const TempFolder folder;
  make_photos(folder);
  std::ofstream(folder / "cat/2.jpg") << "no image";
  const Finished done = plimsoll({"train", "resnet18", "--data", folder.path(), "--input",
                                  "64x64x3", "--batch", "2", "--steps", "1"});
  EXPECT_EQ(done.signal, 0);
  EXPECT_NE(done.exit, 0);
  EXPECT_NE(done.err.find("cat/2.jpg"), std::string::npos) << done.err;
  EXPECT_EQ(done.out.find("1/1"), std::string::npos) << done.out;
}

}  // namespace
}  // namespace pl::test::folder_train_test
