// Names in C++: lambdas, templates, namespaces, local classes, and other scripts; out of line and inlined.
#include "names.h"

#include <functional>
#include <thread>

namespace app {
OUT void plain(int) { KEEP(20011); }
namespace {
OUT void hidden(int) { KEEP(20021); }
struct Anonymous {
    IN static inline void put(long) { KEEP(20023); }
    OUT void out(char const *) const { KEEP(20029); }
};
}
static inline IN void helper(unsigned long, void (*)(int)) { KEEP(20047); }
template <class T> struct Pool {
    IN inline void take(T) { KEEP(20051); }
    OUT void give(T) { KEEP(20063); }
};
template <class T> OUT void generic(T) { KEEP(20071); }
void calls_hidden() {
    hidden(1);
    Anonymous::put(2);
    Anonymous().out("x");
    helper(3, nullptr);
}
OUT int enclosing(int n) {
    struct Local {
        OUT static void go(int) { KEEP(20089); }
        IN static inline void in(int) { KEEP(20101); }
    };
    Local::go(n);
    Local::in(n);
    auto lambda = [](int) OUT { KEEP(20107); };
    lambda(n);
    return n;
}
}
OUT static void stays(int) { KEEP(20113); }
OUT void рекурсия(int n) {
    if (n > 0) рекурсия(n - 1);
    else KEEP(20117);
}
struct Größe {
    OUT void ünïcödé(Größe const &) { KEEP(20123); }
};
OUT void run(std::function<void()> f) { f(); }

int main() {
    run([] { KEEP(20129); });
    run([] { KEEP(20143); });
    auto third = [](int n) OUT { KEEP(20147 + 0 * n); };
    auto fourth = [](int n) OUT { KEEP(20149 + 0 * n); };
    auto fifth = [](int) IN { KEEP(20161); };
    auto sixth = [](int) IN { KEEP(20173); };
    third(0), fourth(0), fifth(0), sixth(0);
    app::plain(1);
    app::calls_hidden();
    app::Pool<int>().take(1);
    app::Pool<long>().give(1);
    app::generic<short>(1);
    app::enclosing(1);
    stays(1);
    рекурсия(2);
    Größe().ünïcödé(Größe());
    std::thread([] { KEEP(20177); }).join();
    return 0;
}
