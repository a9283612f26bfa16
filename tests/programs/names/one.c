// Names in C: the same static function as in two.c, letters that read as types in mangled C++, a header's function.
#include "names.h"

static OUT void init(void) { KEEP(1 << 20); }
static OUT void only_here(void) { KEEP(10007); }
static inline IN void inlined_here(void) { KEEP(10009); }
OUT void f(void) { KEEP(10037); }
OUT void v(void) { KEEP(10039); }
OUT void d(void) { KEEP(10061); }
OUT void s(void) { KEEP(10067); }
OUT void h(void) { KEEP(10069); }
OUT void w(void) { KEEP(10079); }
OUT void a(void) { KEEP(10091); }
OUT void b(void) { KEEP(10093); }
OUT void St(void) { KEEP(10099); }
OUT void PKc(void) { KEEP(10103); }
OUT void i(void) { KEEP(10111); }
static inline IN void St_in(void) { KEEP(10133); }
// It hands out memory under another name: its callers are the program's functions.
static OUT void *my_zalloc(unsigned long size) { return keep(malloc(size)); }
OUT void asks_wrapper(void) {
    keep(my_zalloc(10139));
    KEEP(1);
}
void two(void);

int main(void) {
    init();
    only_here();
    inlined_here();
    f(); v(); d(); s(); h(); w(); a(); b(); St(); PKc(); i();
    St_in();
    in_header();
    asks_wrapper();
    two();
    return 0;
}
