// A library that is loaded and unloaded. Compiled with several FRAME sizes: the code lies at the same addresses, the
// frames differ.
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

// call_back(function, argument): function(argument) from a frame of FRAME bytes.
long call_back(long (*)(void *), void *);
__asm__(".text\n"
        ".globl call_back\n"
        ".type call_back, @function\n"
        ".p2align 4\n"
        "call_back:\n"
        " .cfi_startproc\n"
        " sub $" TEXT(FRAME) ", %rsp\n"
        " .cfi_def_cfa_offset " TEXT(FRAME) " + 8\n"
        " mov %rdi, %rax\n"
        " mov %rsi, %rdi\n"
        " call *%rax\n"
        " add $" TEXT(FRAME) ", %rsp\n"
        " .cfi_def_cfa_offset 8\n"
        " ret\n"
        " .cfi_endproc\n"
        ".size call_back, .-call_back\n");

#ifdef TWIN
// Changes the build id and nothing else that matters.
const char twin[] = "twin";
#endif
