// Functions with unwind information that compilers do not write, as those of odd.S, whose names they have. Each calls x1
// and leaves x0 alone for it.
.text

.macro begin name
.globl \name
.type \name, @function
\name:
 .cfi_startproc
 hint #34
.endm
.macro end name
 .cfi_endproc
.size \name, .-\name
.endm

// CFA in x19.
begin odd_cfa_in_rbx
 stp x19, x30, [sp, #-16]!
 .cfi_def_cfa_offset 16
 .cfi_offset x19, -16
 .cfi_offset x30, -8
 mov x19, sp
 .cfi_def_cfa_register x19
 sub sp, sp, #48
 blr x1
 mov sp, x19
 .cfi_def_cfa_register sp
 ldp x19, x30, [sp], #16
 .cfi_def_cfa_offset 0
 .cfi_restore x19
 .cfi_restore x30
 ret
end odd_cfa_in_rbx

// CFA in x20, and x20 saved at an odd place.
begin odd_cfa_in_r12
 stp x20, x30, [sp, #-32]!
 .cfi_def_cfa_offset 32
 .cfi_offset x20, -32
 .cfi_offset x30, -24
 add x20, sp, #32
 .cfi_def_cfa x20, 0
 sub sp, sp, #64
 blr x1
 sub sp, x20, #32
 .cfi_def_cfa sp, 32
 ldp x20, x30, [sp], #32
 .cfi_def_cfa_offset 0
 .cfi_restore x20
 .cfi_restore x30
 ret
end odd_cfa_in_r12

// CFA = *(sp + 8): an expression that reads the stack.
begin odd_cfa_in_memory
 mov x9, sp
 sub sp, sp, #32
 .cfi_def_cfa_offset 32
 stp x9, x30, [sp, #8]
 .cfi_offset x30, -16
 .cfi_escape 0x0f, 0x03, 0x8f, 0x08, 0x06
 blr x1
 ldr x30, [sp, #16]
 .cfi_restore x30
 add sp, sp, #32
 .cfi_def_cfa sp, 0
 ret
end odd_cfa_in_memory

// x29 clobbered and kept in x21: the caller's x29 is in a register.
begin odd_rbp_in_r13
 stp x21, x30, [sp, #-16]!
 .cfi_def_cfa_offset 16
 .cfi_offset x21, -16
 .cfi_offset x30, -8
 mov x21, x29
 .cfi_register x29, x21
 mov x29, xzr
 blr x1
 mov x29, x21
 .cfi_restore x29
 ldp x21, x30, [sp], #16
 .cfi_def_cfa_offset 0
 .cfi_restore x21
 .cfi_restore x30
 ret
end odd_rbp_in_r13

// x29 recovered by an expression: *(sp + 0), while sp is still known.
begin odd_rbp_by_expression
 sub sp, sp, #32
 .cfi_def_cfa_offset 32
 str x30, [sp, #16]
 .cfi_offset x30, -16
 str x29, [sp]
 // DW_CFA_expression x29, { DW_OP_breg31 0 }
 .cfi_escape 0x10, 0x1d, 0x02, 0x8f, 0x00
 mov x29, #12345
 blr x1
 ldr x29, [sp]
 .cfi_restore x29
 ldr x30, [sp, #16]
 .cfi_restore x30
 add sp, sp, #32
 .cfi_def_cfa_offset 0
 ret
end odd_rbp_by_expression

// The caller's x29 does not lie below the return address.
begin odd_return_address_moved
 sub sp, sp, #48
 .cfi_def_cfa_offset 48
 str x30, [sp, #8]
 .cfi_offset x30, -40
 str x29, [sp, #40]
 .cfi_offset x29, -8
 mov x29, #0x77
 blr x1
 ldr x29, [sp, #40]
 .cfi_restore x29
 ldr x30, [sp, #8]
 .cfi_restore x30
 add sp, sp, #48
 .cfi_def_cfa_offset 0
 ret
end odd_return_address_moved

// Remembered states, one inside the other.
begin odd_remembered_states
 stp x29, x30, [sp, #-16]!
 .cfi_def_cfa_offset 16
 .cfi_offset x29, -16
 .cfi_offset x30, -8
 .cfi_remember_state
 sub sp, sp, #32
 .cfi_def_cfa_offset 48
 .cfi_remember_state
 mov x29, sp
 .cfi_def_cfa x29, 48
 .cfi_restore_state
 mov x29, #3
 blr x1
 add sp, sp, #32
 .cfi_restore_state
 ldp x29, x30, [sp], #16
 .cfi_restore x29
 .cfi_restore x30
 .cfi_def_cfa_offset 0
 ret
end odd_remembered_states

// The return address is signed with the other key, and saved alone at the upper end of the frame.
begin odd_plt_like
 .cfi_b_key_frame
 hint #27
 .cfi_negate_ra_state
 sub sp, sp, #64
 .cfi_def_cfa_offset 64
 str x30, [sp, #56]
 .cfi_offset x30, -8
 blr x1
 ldr x30, [sp, #56]
 .cfi_restore x30
 add sp, sp, #64
 .cfi_def_cfa_offset 0
 hint #31
 .cfi_negate_ra_state
 ret
end odd_plt_like

// No unwind information, but a frame pointer.
.globl odd_without_information
.type odd_without_information, @function
odd_without_information:
 hint #34
 stp x29, x30, [sp, #-32]!
 mov x29, sp
 blr x1
 ldp x29, x30, [sp], #32
 ret
.size odd_without_information, .-odd_without_information

.section .note.GNU-stack, "", @progbits
