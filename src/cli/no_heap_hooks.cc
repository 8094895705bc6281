// Stands in for heap_hooks.cc where the allocator belongs to someone else (sanitizers): nothing is
// counted.
