#include "names.h"
// The static function is further down than one.c has lines.










































static OUT void init(void) { KEEP(2 << 20); }

void two(void) {
    init();
    in_header();
}
