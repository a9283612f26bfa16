# Functions with unwind information that compilers do not write. Each calls *%rsi and leaves %rdi alone for it.
.text

.macro begin name
.globl \name
.type \name, @function
\name:
 .cfi_startproc
.endm
.macro end name
 .cfi_endproc
.size \name, .-\name
.endm

# CFA in rbx.
begin odd_cfa_in_rbx
 push %rbx
 .cfi_def_cfa_offset 16
 .cfi_offset rbx, -16
 mov %rsp, %rbx
 .cfi_def_cfa_register rbx
 sub $48, %rsp
 call *%rsi
 mov %rbx, %rsp
 pop %rbx
 .cfi_def_cfa rsp, 8
 ret
end odd_cfa_in_rbx

# CFA in r12, and r12 saved at an odd place.
begin odd_cfa_in_r12
 push %r12
 .cfi_def_cfa_offset 16
 .cfi_offset r12, -16
 lea 16(%rsp), %r12
 .cfi_def_cfa r12, 0
 sub $64, %rsp
 call *%rsi
 lea -16(%r12), %rsp
 pop %r12
 .cfi_def_cfa rsp, 8
 ret
end odd_cfa_in_r12

# CFA = *(rsp + 8) + 8: an expression that reads the stack.
begin odd_cfa_in_memory
 mov %rsp, %rax
 sub $24, %rsp
 .cfi_def_cfa_offset 32
 mov %rax, 8(%rsp)
 .cfi_escape 0x0f, 0x05, 0x77, 0x08, 0x06, 0x23, 0x08
 call *%rsi
 add $24, %rsp
 .cfi_def_cfa rsp, 8
 ret
end odd_cfa_in_memory

# rbp clobbered and kept in r13: the caller's rbp is in a register.
begin odd_rbp_in_r13
 push %r13
 .cfi_def_cfa_offset 16
 .cfi_offset r13, -16
 mov %rbp, %r13
 .cfi_register rbp, r13
 xor %ebp, %ebp
 call *%rsi
 mov %r13, %rbp
 .cfi_restore rbp
 pop %r13
 .cfi_def_cfa_offset 8
 .cfi_restore r13
 ret
end odd_rbp_in_r13

# rbp recovered by an expression: *(rsp + 0), while rsp is still known.
begin odd_rbp_by_expression
 sub $24, %rsp
 .cfi_def_cfa_offset 32
 mov %rbp, (%rsp)
 # DW_CFA_expression rbp, { DW_OP_breg7 0 }
 .cfi_escape 0x10, 0x06, 0x02, 0x77, 0x00
 mov $12345, %ebp
 call *%rsi
 mov (%rsp), %rbp
 add $24, %rsp
 .cfi_def_cfa_offset 8
 .cfi_restore rbp
 ret
end odd_rbp_by_expression

# The return address was moved: it is not at CFA - 8 any more.
begin odd_return_address_moved
 pop %rax
 .cfi_def_cfa_offset 0
 .cfi_register rip, rax
 sub $48, %rsp
 .cfi_def_cfa_offset 48
 mov %rax, 16(%rsp)
 .cfi_offset rip, -32
 movq $0, 40(%rsp)
 call *%rsi
 mov 16(%rsp), %rcx
 .cfi_register rip, rcx
 add $48, %rsp
 .cfi_def_cfa_offset 0
 push %rcx
 .cfi_def_cfa_offset 8
 .cfi_offset rip, -8
 ret
end odd_return_address_moved

# Remembered states, one inside the other.
begin odd_remembered_states
 push %rbp
 .cfi_def_cfa_offset 16
 .cfi_offset rbp, -16
 .cfi_remember_state
 sub $32, %rsp
 .cfi_def_cfa_offset 48
 .cfi_remember_state
 mov %rsp, %rbp
 .cfi_def_cfa rbp, 48
 .cfi_restore_state
 lea 48(%rsp), %rbp
 call *%rsi
 add $32, %rsp
 .cfi_restore_state
 pop %rbp
 .cfi_restore rbp
 .cfi_def_cfa_offset 8
 ret
end odd_remembered_states

# A frame larger than a rule has bits for.
begin odd_huge_frame
 sub $0x200008, %rsp
 .cfi_def_cfa_offset 0x200010
 call *%rsi
 add $0x200008, %rsp
 .cfi_def_cfa_offset 8
 ret
end odd_huge_frame

# An expression of rsp, rip and constants, as in a PLT: CFA = rsp + 16 + ((rip & 15) < 16) * 16.
begin odd_plt_like
 sub $24, %rsp
 .cfi_escape 0x0f, 0x0b, 0x77, 0x10, 0x80, 0x00, 0x3f, 0x1a, 0x40, 0x2d, 0x34, 0x24, 0x22
 call *%rsi
 add $24, %rsp
 .cfi_def_cfa rsp, 8
 ret
end odd_plt_like

# CFA = rsp + 16 + (rsp & 16) * 2: not as far away for every rsp.
begin odd_cfa_by_alignment
 sub $8, %rsp
 .cfi_def_cfa_offset 16
 mov %rsp, %rax
 and $16, %eax
 add %rax, %rax
 sub %rax, %rsp
 .cfi_escape 0x0f, 0x09, 0x77, 0x10, 0x77, 0x00, 0x40, 0x1a, 0x31, 0x24, 0x22
 call *%rsi
 mov %rsp, %rcx
 and $16, %ecx
 lea 8(%rsp, %rcx, 2), %rsp
 .cfi_def_cfa rsp, 8
 ret
end odd_cfa_by_alignment

# No unwind information, but a frame pointer. `cld` keeps the code from telling the frame.
.globl odd_without_information
.type odd_without_information, @function
odd_without_information:
 push %rbp
 mov %rsp, %rbp
 call *%rsi
 cld
 pop %rbp
 ret
.size odd_without_information, .-odd_without_information

# No unwind information, and rbp is no frame pointer.
.globl odd_without_anything
.type odd_without_anything, @function
odd_without_anything:
 push %rbp
 mov $0x1234567, %ebp
 call *%rsi
 cld
 pop %rbp
 ret
.size odd_without_anything, .-odd_without_anything

.section .note.GNU-stack, "", @progbits
