// A library that says of itself what HotSpot does, but next to nothing: of an unknown version.

struct field {
    const char *owner, *name, *kind;
    int is_static;
    unsigned long offset;
    void *address;
};

struct type {
    const char *name, *super;
    int is_oop, is_integer, is_unsigned;
    unsigned long size;
};

struct constant {
    const char *name;
    long value;
};

static int version = 99;
static struct field fields[] = {{"Abstract_VM_Version", "_vm_major_version", "int", 1, 0, &version}, {0}};
static struct type types[] = {{"nmethod", 0, 0, 0, 0, 352}, {0}};
static struct constant constants[] = {{"JVM_ACC_NATIVE", 256}, {0}};

struct field *gHotSpotVMStructs = fields;
unsigned long gHotSpotVMStructEntryArrayStride = sizeof(struct field);
unsigned long gHotSpotVMStructEntryTypeNameOffset = __builtin_offsetof(struct field, owner);
unsigned long gHotSpotVMStructEntryFieldNameOffset = __builtin_offsetof(struct field, name);
unsigned long gHotSpotVMStructEntryTypeStringOffset = __builtin_offsetof(struct field, kind);
unsigned long gHotSpotVMStructEntryIsStaticOffset = __builtin_offsetof(struct field, is_static);
unsigned long gHotSpotVMStructEntryOffsetOffset = __builtin_offsetof(struct field, offset);
unsigned long gHotSpotVMStructEntryAddressOffset = __builtin_offsetof(struct field, address);

struct type *gHotSpotVMTypes = types;
unsigned long gHotSpotVMTypeEntryArrayStride = sizeof(struct type);
unsigned long gHotSpotVMTypeEntryTypeNameOffset = __builtin_offsetof(struct type, name);
unsigned long gHotSpotVMTypeEntrySizeOffset = __builtin_offsetof(struct type, size);

struct constant *gHotSpotVMIntConstants = constants;
unsigned long gHotSpotVMIntConstantEntryArrayStride = sizeof(struct constant);
unsigned long gHotSpotVMIntConstantEntryNameOffset = __builtin_offsetof(struct constant, name);
unsigned long gHotSpotVMIntConstantEntryValueOffset = __builtin_offsetof(struct constant, value);

struct constant *gHotSpotVMLongConstants = constants;
unsigned long gHotSpotVMLongConstantEntryArrayStride = sizeof(struct constant);
unsigned long gHotSpotVMLongConstantEntryNameOffset = __builtin_offsetof(struct constant, name);
unsigned long gHotSpotVMLongConstantEntryValueOffset = __builtin_offsetof(struct constant, value);
