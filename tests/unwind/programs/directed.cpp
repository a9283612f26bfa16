// directed CASE: one constructed case; exits 1 and says what failed if it does. The cases are in directed_*.cpp.
#include "directed.hpp"

extern "C" {
Probe directed_probe = probe;
uint64_t stack_result;
void add_function(Function) {}
long go(Walk *, int) { return 0; }
long go_with_stack_arguments(Walk *, int, long, long, long, long, long, long, long, long) { return 0; }
}

int main(int argc, char **argv) {
    for (const DirectedCases *cases :
         {&frame_pointer_cases, &damaged_information_cases, &signal_cases, &memory_cases, &signature_cases})
        for (const DirectedCase &one : *cases)
            if (argc > 1 && strcmp(argv[1], one.name) == 0) {
                one.run();
                return failures ? 1 : 0;
            }
    fprintf(stderr, "no case %s\n", argc > 1 ? argv[1] : "");
    return 2;
}
