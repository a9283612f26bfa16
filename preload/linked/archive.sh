#!/usr/bin/env bash
# Makes libtracehound.a of what Cargo has built: archive.sh FOLDER, where libtracehound_linked.a lies in FOLDER. The options
# of the link come to lie beside it.
#
#     tracehound.o   the recorder as one object, with Rust's library inside. No name of it is seen from outside but the hooks
#                    (__wrap_malloc, …), the C interface, and what the crate `tracehound` calls
#     wrapped.o      the functions behind the hooks in a link with the options: __real_malloc, …
#     plain.o        the same in a link without them: malloc, …
#
# A link takes one of the last two: the crate asks for a name of plain.o, everything else leads to wrapped.o.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "$1" && pwd)
built=$folder/libtracehound_linked.a
options=$here/tracehound-wrap.opts
made=$folder/libtracehound.a

newer() { [ "$made" -nt "$1" ] && [ "$folder/tracehound-wrap.opts" -nt "$1" ]; }
if newer "$built" && newer "$options" && newer "$here/archive.sh"; then exit 0; fi

work=$(mktemp -d "$folder/archive.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

mapfile -t hooks < <(sed -n 's/^-Wl,--wrap=//p' "$options")
interface=(start stop mark flush look pool_alloc pool_free context_set context_get context_name
    allocator_alloc allocator_realloc allocator_dealloc)
interface=("${interface[@]/#/tracehound_}")

# What nothing leads to stays out. Then all code goes into one section, by whose borders calls of the recorder's own are
# known; the compiler's own notes in Rust's library go nowhere.
cat >merge.ld <<'END'
SECTIONS { tracehound_text : { *(.text .text.*) } /DISCARD/ : { *(.llvmbc .llvmcmd) } }
END
roots=()
for name in "${hooks[@]}" "${interface[@]}"; do roots+=("--undefined=$name"); done
ld -r --gc-sections "${roots[@]}" -o needed.o "$built"
ld -r --force-group-allocation -T merge.ld -o whole.o needed.o

# Names of the bundled allocator would be taken for the program's.
{
    for name in "${hooks[@]}"; do echo "$name __wrap_$name"; done
    nm whole.o | awk '$NF ~ /^_rjem_/ { print $NF, "tracehound_heap_" ++count }'
} >renamed
{
    for name in "${hooks[@]}"; do echo "__wrap_$name"; done
    printf '%s\n' "${interface[@]}"
} >kept
objcopy --strip-debug --remove-section=.comment --redefine-syms=renamed --keep-global-symbols=kept whole.o tracehound.o

# The tables: whether calls are wrapped, then names and addresses.
table() { # 0 or 1, prefix of the names
    echo ".section .rodata.tracehound_names,\"a\",@progbits"
    for name in "${hooks[@]}"; do echo ".Lname_$name: .asciz \"$name\""; done
    echo ".section .data.rel.ro.tracehound_behind,\"aw\",@progbits"
    echo ".globl tracehound_behind"
    echo ".hidden tracehound_behind"
    echo ".p2align 3"
    echo "tracehound_behind: .quad $1"
    for name in "${hooks[@]}"; do
        case $name in
        # libgcc's, which is not in every program.
        __register_frame* | __deregister_frame*) echo ".weak $2$name" ;;
        # They come with malloc, from whoever defines that: asked for by name, libc's would stand beside the program's own.
        calloc | realloc | free | posix_memalign | aligned_alloc | memalign | valloc | pvalloc | malloc_usable_size)
            echo ".weak $2$name" ;;
        # Without the options the recorder's own calls are all there are.
        malloc | syscall | pthread_setname_np) ;;
        *) [ "$1" = 1 ] || echo ".weak $2$name" ;;
        esac
        echo ".quad .Lname_$name, $2$name"
    done
    echo ".quad 0, 0"
    echo ".section .note.GNU-stack,\"\",@progbits"
}
table 1 __real_ | as -o wrapped.o -
{
    table 0 ""
    # Asking for these is asking for this table.
    echo ".text"
    for name in alloc realloc dealloc; do
        echo ".globl tracehound_global_$name"
        echo ".type tracehound_global_$name, @function"
        case $(uname -m) in
        aarch64) echo "tracehound_global_$name: b tracehound_allocator_$name" ;;
        *) echo "tracehound_global_$name: jmp tracehound_allocator_$name" ;;
        esac
    done
} | as -o plain.o -
ar rcsD new.a tracehound.o wrapped.o plain.o
mv new.a "$made"
cp "$options" "$folder/tracehound-wrap.opts"
