// The backend in scope on this thread, for those who can do without one.
#pragma once

namespace pl {

class Backend;

Backend* backend_in_scope();  // null where BackendScope::current() would throw

}  // namespace pl
