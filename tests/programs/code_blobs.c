// A code cache as HotSpot has it, described by the tables that HotSpot exports, with layouts of its own: what the recorder
// reads of a JVM, without one. A piece of code allocates; then other code, with another frame, takes its place, and is
// called so that its frame holds all words of the stack before.
//
//   code_blobs          allocates 70001 bytes by way of `between`, then 70002 without
//   code_blobs VERSION  the same with tables of this version of HotSpot
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct virtual_space { void *other; char *low_boundary, *high_boundary, *low, *high; };
struct code_heap { long other; struct virtual_space segmap, memory; int log2_segment_size; };
struct heap_block { uint32_t length; uint32_t pad; uint8_t more, used; char rest[6]; };
struct code_blob { void *other; int frame_size, size, frame_complete; void *code_begin; const char *name; };
struct growable_array { int len, max; long other; struct code_heap **data; };
struct stub_queue { long other; char *stub_buffer; int number, buffer_limit; };

static struct code_heap heap;
static struct code_heap *heap_list[] = { &heap };
static struct growable_array heaps_array = { 1, 1, 0, heap_list };
static struct stub_queue queue;
static struct growable_array *heaps = &heaps_array;
static struct stub_queue *interpreter = &queue;
static char *low_bound, *high_bound, *call_stub_return;
static int major_version = 17;

struct vm_struct { const char *type, *field, *type_string; int32_t is_static; uint64_t offset; void *address; };
struct vm_type { const char *type, *super; int32_t is_oop, is_integer, is_unsigned; uint64_t size; };
struct vm_constant { const char *name; int32_t value; };
#define STATIC(type, field, kind, variable) { type, field, kind, 1, 0, &variable }
#define FIELD(type, field, kind, structure, member) { type, field, kind, 0, offsetof(struct structure, member), 0 }
static struct vm_struct structs[] = {
    STATIC("CodeCache", "_heaps", "GrowableArray<CodeHeap*>*", heaps),
    STATIC("CodeCache", "_low_bound", "address", low_bound),
    STATIC("CodeCache", "_high_bound", "address", high_bound),
    STATIC("StubRoutines", "_call_stub_return_address", "address", call_stub_return),
    STATIC("AbstractInterpreter", "_code", "StubQueue*", interpreter),
    STATIC("Abstract_VM_Version", "_vm_major_version", "int", major_version),
    FIELD("StubQueue", "_stub_buffer", "address", stub_queue, stub_buffer),
    FIELD("StubQueue", "_buffer_limit", "int", stub_queue, buffer_limit),
    FIELD("GrowableArrayBase", "_len", "int", growable_array, len),
    FIELD("GrowableArray<int>", "_data", "int*", growable_array, data),
    FIELD("CodeHeap", "_memory", "VirtualSpace", code_heap, memory),
    FIELD("CodeHeap", "_segmap", "VirtualSpace", code_heap, segmap),
    FIELD("CodeHeap", "_log2_segment_size", "int", code_heap, log2_segment_size),
    FIELD("VirtualSpace", "_low_boundary", "char*", virtual_space, low_boundary),
    FIELD("VirtualSpace", "_high_boundary", "char*", virtual_space, high_boundary),
    FIELD("VirtualSpace", "_low", "char*", virtual_space, low),
    FIELD("VirtualSpace", "_high", "char*", virtual_space, high),
    FIELD("HeapBlock::Header", "_used", "bool", heap_block, used),
    FIELD("CodeBlob", "_size", "int", code_blob, size),
    FIELD("CodeBlob", "_frame_size", "int", code_blob, frame_size),
    FIELD("CodeBlob", "_frame_complete_offset", "int", code_blob, frame_complete),
    FIELD("CodeBlob", "_code_begin", "address", code_blob, code_begin),
    { 0 },
};
static struct vm_type types[] = {
    { "HeapBlock", 0, 0, 0, 0, sizeof(struct heap_block) },
    { "CodeBlob", 0, 0, 0, 0, sizeof(struct code_blob) },
    { 0 },
};
static struct vm_constant constants[] = { { "frame::interpreter_frame_sender_sp_offset", -1 }, { 0 } };

void *gHotSpotVMStructs = structs, *gHotSpotVMTypes = types, *gHotSpotVMIntConstants = constants;
uint64_t gHotSpotVMStructEntryTypeNameOffset = offsetof(struct vm_struct, type),
         gHotSpotVMStructEntryFieldNameOffset = offsetof(struct vm_struct, field),
         gHotSpotVMStructEntryTypeStringOffset = offsetof(struct vm_struct, type_string),
         gHotSpotVMStructEntryIsStaticOffset = offsetof(struct vm_struct, is_static),
         gHotSpotVMStructEntryOffsetOffset = offsetof(struct vm_struct, offset),
         gHotSpotVMStructEntryAddressOffset = offsetof(struct vm_struct, address),
         gHotSpotVMStructEntryArrayStride = sizeof(struct vm_struct),
         gHotSpotVMTypeEntryTypeNameOffset = offsetof(struct vm_type, type),
         gHotSpotVMTypeEntrySizeOffset = offsetof(struct vm_type, size),
         gHotSpotVMTypeEntryArrayStride = sizeof(struct vm_type),
         gHotSpotVMIntConstantEntryNameOffset = offsetof(struct vm_constant, name),
         gHotSpotVMIntConstantEntryValueOffset = offsetof(struct vm_constant, value),
         gHotSpotVMIntConstantEntryArrayStride = sizeof(struct vm_constant);
int JNI_CreateJavaVM(void) { return 0; }

enum { SEGMENT = 128, SEGMENTS = 512 };

static struct code_blob *block_at(int segment, int segments, int frame_words) {
    struct heap_block *block = (void *)(heap.memory.low + segment * SEGMENT);
    block->length = segments;
    block->used = 1;
    struct code_blob *blob = (void *)(block + 1);
    blob->size = segments * SEGMENT - sizeof *block;
    blob->frame_size = frame_words;
    blob->code_begin = blob + 1;
    blob->frame_complete = 0;
    for (int index = 0; index < segments; index++) heap.segmap.low[segment + index] = index;
    return blob;
}

// push rbp; mov rbp, 0 (nothing that leads anywhere); sub rsp, FRAME; call malloc; add rsp, FRAME; pop rbp; ret
static void put_code(struct code_blob *blob, uint32_t frame_bytes) {
    uint32_t space = frame_bytes - 16;
    unsigned char *code = blob->code_begin;
    void *target = malloc;
    memcpy(code, "\x55\x48\xc7\xc5\x07\x00\x00\x00\x48\x81\xec____\x48\xb8________\xff\xd0\x48\x81\xc4____\x5d\xc3", 36);
    memcpy(code + 11, &space, 4);
    memcpy(code + 17, &target, 8);
    memcpy(code + 30, &space, 4);
}

typedef void *allocate(size_t, void *);
enum { INNER = 96, BETWEEN = 112, TIMES = 3 };
static void *kept[2 * TIMES];

// Calls `code`. Its frame is BETWEEN bytes.
void *between(size_t size, void *code);
__asm__(".text\n.globl between\n.type between, @function\nbetween:\n.cfi_startproc\n"
        "sub $104, %rsp\n.cfi_def_cfa_offset 112\n"
        "call *%rsi\n"
        "add $104, %rsp\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n.size between, .-between\n");

// One call for all, so that its return address is the same.
__attribute__((noinline)) static void call_all(struct code_blob *blob) {
    char *code = blob->code_begin;
    allocate *volatile target = between;
    for (int index = 0; index < 2 * TIMES; index++) {
        if (index == TIMES) {
            // Other code takes the place; its frame begins where that of `between` began. Nothing is called: what is below
            // on the stack stays there.
            *(volatile uint32_t *)(code + 11) = INNER + BETWEEN - 16;
            *(volatile uint32_t *)(code + 30) = INNER + BETWEEN - 16;
            *(volatile int *)&blob->frame_size = (INNER + BETWEEN) / 8;
            target = (allocate *)code;
        }
        kept[index] = target(index < TIMES ? 70001 : 70002, code);
    }
}

int main(int count, char **words) {
    if (count > 1) major_version = atoi(words[1]);
    char *memory = mmap(0, SEGMENT * SEGMENTS, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(map, 0xff, 4096);
    heap.memory = (struct virtual_space){ 0, memory, memory + SEGMENT * SEGMENTS, memory, memory + SEGMENT * SEGMENTS };
    heap.segmap = (struct virtual_space){ 0, map, map + 4096, map, map + SEGMENTS };
    heap.log2_segment_size = 7;
    struct code_blob *stubs = block_at(0, 4, 0), *code = block_at(4, 300, INNER / 8);
    low_bound = memory;
    high_bound = memory + SEGMENT * SEGMENTS;
    call_stub_return = (char *)(stubs + 1) + 8;
    queue.stub_buffer = (char *)(stubs + 1) + 64;
    queue.buffer_limit = 64;
    put_code(code, INNER);
    call_all(code);
    puts("done");
    return kept[0] == kept[1];
}
