# Two paths to one function with the same return addresses and the same stack pointer, told apart by rbp alone.
#
#   path A:  meet <- fixed <- frame_with_room <- one call site      frame_with_room makes 64 bytes of room
#   path B:  meet <-          frame_with_room <- one call site      ... 96 bytes: sp is the same below it
#
# `frame_with_room` computes its CFA from rbp, so whoever trusts (pc, sp) mistakes one path for the other.
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

# call_either(target, room, inner): the one call site.
begin call_either
 sub $8, %rsp
 .cfi_def_cfa_offset 16
 call *%rdi
 add $8, %rsp
 .cfi_def_cfa_offset 8
 ret
end call_either

# One more fixed frame of 32 bytes.
begin fixed_then_room
 sub $24, %rsp
 .cfi_def_cfa_offset 32
 call frame_with_room
 add $24, %rsp
 .cfi_def_cfa_offset 8
 ret
end fixed_then_room

# frame_with_room(_, room, inner)
begin frame_with_room
 push %rbp
 .cfi_def_cfa_offset 16
 .cfi_offset rbp, -16
 mov %rsp, %rbp
 .cfi_def_cfa_register rbp
 sub %rsi, %rsp
 call *%rdx
 leave
 .cfi_def_cfa rsp, 8
 ret
end frame_with_room

# Between there and the probe: one frame that leaves rbp alone, and one that saves and clobbers it.
begin inner_keeps_rbp
 sub $8, %rsp
 .cfi_def_cfa_offset 16
 call *directed_probe(%rip)
 add $8, %rsp
 .cfi_def_cfa_offset 8
 ret
end inner_keeps_rbp

begin inner_saves_rbp
 push %rbp
 .cfi_def_cfa_offset 16
 .cfi_offset rbp, -16
 xor %ebp, %ebp
 call *directed_probe(%rip)
 pop %rbp
 .cfi_restore rbp
 .cfi_def_cfa_offset 8
 ret
end inner_saves_rbp

# Realigned by hand: CFA = *(rbp - 8), rbp = *(rbp). realigned_with(_, room, inner, place): rbp points `place` bytes
# above the frame's end, so that rbp can differ where pc, sp and CFA are the same.
.macro realigned place
 mov %rbp, (\place)
 mov %r10, -8(\place)
 mov \place, %rbp
 # DW_CFA_expression rbp { breg6 0 }; DW_CFA_def_cfa_expression { breg6 -8; deref }
 .cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00
 .cfi_escape 0x0f, 0x03, 0x76, 0x78, 0x06
.endm
.macro leave_realigned
 mov -8(%rbp), %r10
 mov (%rbp), %rbp
 .cfi_restore rbp
 .cfi_def_cfa r10, 0
 lea -8(%r10), %rsp
 .cfi_def_cfa rsp, 8
 ret
.endm

begin realigned_with
 lea 8(%rsp), %r10
 .cfi_def_cfa r10, 0
 sub %rsi, %rsp
 lea (%rsp, %rcx), %rax
 realigned %rax
 call *%rdx
 leave_realigned
end realigned_with

# One more fixed frame of 32 bytes around it.
begin fixed_then_realigned
 sub $24, %rsp
 .cfi_def_cfa_offset 32
 call realigned_with
 add $24, %rsp
 .cfi_def_cfa_offset 8
 ret
end fixed_then_realigned

# call_realigned(target, room, inner, place): the one call site.
begin call_realigned
 sub $8, %rsp
 .cfi_def_cfa_offset 16
 call *%rdi
 add $8, %rsp
 .cfi_def_cfa_offset 8
 ret
end call_realigned

# A realigned frame between the probe and a frame that needs rbp.
begin inner_realigned
 lea 8(%rsp), %r10
 .cfi_def_cfa r10, 0
 sub $136, %rsp
 lea 64(%rsp), %rax
 realigned %rax
 call *directed_probe(%rip)
 leave_realigned
end inner_realigned

# Two outermost functions of coroutines, alike but for their addresses.
begin first_of_stack
 sub $8, %rsp
 .cfi_def_cfa_offset 16
 call inner_keeps_rbp
 mov %rax, stack_result(%rip)
 add $8, %rsp
 .cfi_def_cfa_offset 8
 ret
end first_of_stack

begin other_of_stack
 sub $8, %rsp
 .cfi_def_cfa_offset 16
 call inner_keeps_rbp
 mov %rax, stack_result(%rip)
 add $8, %rsp
 .cfi_def_cfa_offset 8
 ret
end other_of_stack

# The information lies: CFA = rsp + 0x80000, far above the caller's frame, perhaps above the stack.
begin lying_frame
 sub $8, %rsp
 .cfi_def_cfa_offset 0x80000
 call *%rdi
 add $8, %rsp
 .cfi_def_cfa_offset 8
 ret
end lying_frame

# The information lies: CFA below the frame's own stack pointer.
begin shrinking_frame
 sub $24, %rsp
 .cfi_escape 0x0f, 0x03, 0x77, 0x80, 0x7f
 call *%rdi
 add $24, %rsp
 .cfi_def_cfa rsp, 8
 ret
end shrinking_frame

# The information lies: rbp is no frame at all. with_rbp(target, rbp)
begin with_rbp
 push %rbp
 .cfi_def_cfa_offset 16
 .cfi_offset rbp, -16
 mov %rsi, %rbp
 call bad_rbp_frame
 pop %rbp
 .cfi_restore rbp
 .cfi_def_cfa_offset 8
 ret
end with_rbp

begin bad_rbp_frame
 sub $8, %rsp
 .cfi_def_cfa rbp, 16
 call *%rdi
 add $8, %rsp
 .cfi_def_cfa rsp, 8
 ret
end bad_rbp_frame

# The information lies: the CFA is the frame's own stack pointer, so that it would be its own caller for ever.
begin standing_frame
 push %rbp
 .cfi_def_cfa_offset 16
 .cfi_offset rbp, -16
 lea -16(%rsp), %rbp
 .cfi_def_cfa rbp, 16
 call *%rdi
 pop %rbp
 .cfi_restore rbp
 .cfi_def_cfa rsp, 8
 ret
end standing_frame

# The information lies: rbp is saved far below the frame.
begin lying_save
 sub $8, %rsp
 .cfi_def_cfa_offset 16
 .cfi_offset rbp, -0x7ff0
 call *%rdi
 add $8, %rsp
 .cfi_restore rbp
 .cfi_def_cfa_offset 8
 ret
end lying_save

# A trap with any stack pointer, in a frame of 64 bytes that has saved rbp in its middle: trap_with_sp(sp).
begin trap_with_sp
 mov %rdi, %rsp
 .cfi_def_cfa_offset 64
 .cfi_offset rbp, -32
 movl $0, (%rsp)
 ud2
end trap_with_sp

# The same, with nothing saved.
begin trap_with_sp_alone
 mov %rdi, %rsp
 .cfi_def_cfa_offset 64
 movl $0, (%rsp)
 ud2
end trap_with_sp_alone

# CFA = *rbx, wherever rbx points: cfa_behind_rbx(target, rbx).
begin cfa_behind_rbx
 push %rbx
 .cfi_def_cfa_offset 16
 .cfi_offset rbx, -16
 mov %rsi, %rbx
 # DW_CFA_def_cfa_expression { breg3 0; deref }
 .cfi_escape 0x0f, 0x03, 0x73, 0x00, 0x06
 call *%rdi
 pop %rbx
 .cfi_restore rbx
 .cfi_def_cfa rsp, 8
 ret
end cfa_behind_rbx

# No unwind information, any rbp, and code that does not tell the frame: without_information_with_rbp(target, rbp).
.globl without_information_with_rbp
.type without_information_with_rbp, @function
without_information_with_rbp:
 push %rbp
 mov %rsi, %rbp
 call *%rdi
 cld
 pop %rbp
 ret
.size without_information_with_rbp, .-without_information_with_rbp

# The same, with an epilogue that tells it: plain_epilogue(target, rbp).
.globl plain_epilogue
.type plain_epilogue, @function
plain_epilogue:
 push %rbp
 sub $16, %rsp
 mov %rsi, %rbp
 call *%rdi
 add $8, %rsp
 pop %rcx
 pop %rbp
 ret
.size plain_epilogue, .-plain_epilogue

# Between a frame that needs rbp and the probe: inner_saves_rbp without its information.
.globl plain_inner
.type plain_inner, @function
plain_inner:
 push %rbp
 xor %ebp, %ebp
 call *directed_probe(%rip)
 pop %rbp
 ret
.size plain_inner, .-plain_inner

# Its epilogue is not what will happen: it would return to `word`, which is replaced before. false_epilogue(target, word)
.globl false_epilogue
.type false_epilogue, @function
false_epilogue:
 push %rbp
 mov %rsp, %rbp
 push %rsi
 push %rax
 call replaces_word
 pop %rcx
 ret
1:
 pop %rbp
 ret
.size false_epilogue, .-false_epilogue

begin replaces_word
 sub $8, %rsp
 .cfi_def_cfa_offset 16
 call *%rdi
 add $8, %rsp
 .cfi_def_cfa_offset 8
 lea 1b(%rip), %rcx
 mov %rcx, 16(%rsp)
 ret
end replaces_word

# Traps at one of two places: trap_at(place). A handler on another stack sees the same sp and two PCs.
begin trap_at
 test %rdi, %rdi
 jnz 1f
 int3
 ret
1:
 int3
 ret
end trap_at

# Traps; and one more fixed frame around that.
begin trap_here
 int3
 ret
end trap_here

begin fixed_then_trap
 sub $24, %rsp
 .cfi_def_cfa_offset 32
 call trap_here
 add $24, %rsp
 .cfi_def_cfa_offset 8
 ret
end fixed_then_trap

# Traps in an epilogue: rbp has been popped, and the information still names its slot.
begin trap_in_epilogue
 push %rbp
 .cfi_def_cfa_offset 16
 .cfi_offset rbp, -16
 xor %ebp, %ebp
 pop %rbp
 .cfi_def_cfa_offset 8
 int3
 ret
end trap_in_epilogue

# CFA = *r10, and the function it calls, which traps, has another r10.
begin cfa_behind_r10
 sub $8, %rsp
 .cfi_escape 0x0f, 0x03, 0x7a, 0x00, 0x06
 call trap_with_other_r10
 add $8, %rsp
 .cfi_def_cfa rsp, 8
 ret
end cfa_behind_r10

begin trap_with_other_r10
 lea 24(%rsp), %rax
 push %rax
 .cfi_def_cfa_offset 16
 mov %rsp, %r10
 int3
 pop %rax
 .cfi_def_cfa_offset 8
 ret
end trap_with_other_r10

# Traps with a stack pointer that is no multiple of eight.
begin trap_misaligned
 sub $4, %rsp
 .cfi_def_cfa_offset 12
 int3
 add $4, %rsp
 .cfi_def_cfa_offset 8
 ret
end trap_misaligned

# What C libraries without unwind information let handlers return to.
.globl restorer_without_information
.type restorer_without_information, @function
 nop
restorer_without_information:
 mov $15, %rax
 syscall
.size restorer_without_information, .-restorer_without_information

.section .note.GNU-stack, "", @progbits
