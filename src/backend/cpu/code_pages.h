#pragma once

#include "base/bytes.h"

namespace pl {

// Pages of code and constants come one by one when they are first read, instead of with their
// neighbours: how many neighbours the system would map depends on how the file came into its page
// cache, and is up to 5 MiB. What is loaded later is held so by the next call. False: this system
// does not do it (Linux before 6.7, a sandbox without userfaultfd).
bool hold_code_by_page();

// Gives back the pages of code and constants that only preparation read, and what the heap keeps
// of planning. The former are the file's own pages: whatever is needed again comes back from the
// page cache on first use. Called before the arena is filled, so that generators of machine code
// (some 16 MiB of oneDNN's) and searches (some MiB for a thousand nodes) do not count beside it.
void release_code_pages();

// The pages of code alone, when more than `most` bytes of files are resident. Called between
// preparations, so that their peak stays below that of training.
void trim_code_pages(Bytes most);

}  // namespace pl
