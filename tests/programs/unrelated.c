// A program that does nothing and is linked in unusual ways: statically, for another word size.
int main(void) { return 0; }
