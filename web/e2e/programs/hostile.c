/* Functions whose names are changed after compilation to ones that no compiler gives. Built without debug
 * information, which would keep their true names. */
#include <stdlib.h>
#include <string.h>

static void *touch(void *block, size_t size) {
  if (block) memset(block, 1, size);
  return block;
}

void *hostile_markup(size_t size) { return touch(malloc(size), size); }
void *long_name(size_t size) { return touch(malloc(size), size); }
