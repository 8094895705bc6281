#pragma once

#include "base/bytes.h"

namespace pl {

// Gives back the pages of code and constants that only preparation read. They are the file's own
// pages: whatever is needed again comes back from the page cache on first use. Called once before
// the arena is filled, so that generators of machine code (some 16 MiB of oneDNN's) do not count
// beside it.
void release_code_pages();

// Gives back what is free of the heap: planning needs more of it than training.
void release_free_heap();

// The same as release_code_pages when more than `most` bytes of files are resident. Called between
// preparations, so that their peak stays below that of training.
void trim_code_pages(Bytes most);

}  // namespace pl
