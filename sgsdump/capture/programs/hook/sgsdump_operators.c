/* What a round's index says of ordinary operators: those whose tensors lie in the memory of the CPU, of a dump of
 * statistics. Apart: it does what sgsdump_torch_taking.py and sgsdump_torch_round.py do, on the same objects.
 *
 * An operator of a language model takes microseconds to run, and Python ten times as long to tell of it. Whatever is
 * unusual about one is left to Python: ``begin`` and ``end`` say so by False and leave nothing behind, and so does an
 * exception. What is written is the same to the last byte, with this and without (tests/capture/programs/test_torch_ordinary.py).
 *
 * A tensor that an operator made is known by itself; its memory is looked up (``register``) when something is seen to
 * share it, for most tensors never are: until then the record has no storage, and its entry stands in ``pending``.
 */

#include "sgsdump_kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <unistd.h>
#endif

#define MOST_TENSORS 64  /* of one operator that is ordinary */
#define MOST_DIMS 16
#define MANY (1 << 16)   /* elements: statistics of more are taken by torch's threads, which Python knows */
#define MOST_COPIED (1 << 20) /* elements of a view that are brought into the order of memory */
#define MOST_PENDING 4096
#define OFTEN 256        /* operators after which Python looks at the control file again */
#define MOST_TEXT (1 << 20)

#define NAMES(X)                                                                                                       \
    X(quiet) X(now) X(stopped) X(choice) X(lines) X(lookup) X(met) X(_weights) X(_last) X(path) X(operator) X(opaque)  \
    X(children) X(index) X(number) X(_told) X(chosen) X(numbers) X(tensors) X(operators) X(_form) X(_index) X(_number) \
    X(size) X(_held) X(say) X(told) X(era) X(unwritten) X(current) X(text) X(word) X(weight) X(round) X(version)       \
    X(sample) X(figures) X(storage) X(records) X(writers) X(parts) X(device) X(dtype) X(shape) X(stats) X(beyond)      \
    X(why) X(stored) X(first) X(checksum) X(_version) X(data_ptr) X(stride) X(storage_offset) X(untyped_storage)       \
    X(nbytes) X(_cdata) X(is_nested) X(layout) X(is_meta) X(is_quantized) X(_is_zerotensor) X(is_cpu) X(is_neg)        \
    X(is_conj) X(is_inference) X(is_contiguous) X(__name__)

#define DECLARE(name) static PyObject *s_##name;
NAMES(DECLARE)
static PyObject *s_empty;

/* What an Ordinary is made of, in the order in which it is given. */
#define FIELDS(X)                                                                                                      \
    X(facts) X(tensor_type) X(parameter_type) X(strided) X(kinds) X(record_type) X(identities) X(of_storage)           \
    X(blanks) X(pending) X(register_) X(flush) X(statistics) X(function_modes) X(transforms) X(constants) X(control)   \
    X(round) X(frames) X(frame_type) X(paths) X(names) X(known) X(owners) X(mark) X(model) X(step) X(time) X(round_index) X(file_device)

/* Text that grows. */
typedef struct {
    char *text;
    size_t size, held;
} text_t;

typedef struct {
    PyObject_HEAD
#define MEMBER(name) PyObject *name;
    FIELDS(MEMBER)
    PyObject *now, *choice;            /* of the control */
    PyObject *operator, *key, *text;   /* of the operator that runs */
    PyObject *inputs[MOST_TENSORS];    /* its tensors, and their records */
    PyObject *records[MOST_TENSORS];
    PyObject *told[MOST_TENSORS];      /* records that this call told of for the first time in the step */
    char step_text[24], device_text[24];
    text_t waiting, words;             /* lines that are still to be written; what a line says of tensors */
    int tensors, news, is_view, since;
} ordinary_t;

/* ---- zlib.crc32 ---- */

static uint32_t crc_table[8][256];

static void make_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t word = i;
        for (int bit = 0; bit < 8; bit++)
            word = word & 1 ? word >> 1 ^ 0xedb88320u : word >> 1;
        crc_table[0][i] = word;
    }
    for (int level = 1; level < 8; level++)
        for (uint32_t i = 0; i < 256; i++)
            crc_table[level][i] = crc_table[level - 1][i] >> 8 ^ crc_table[0][crc_table[level - 1][i] & 0xff];
}

static uint32_t crc32_of(uint32_t before, const char *text, size_t size)
{
    const uint8_t *data = (const uint8_t *)text;
    uint32_t word = ~before;
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low = word ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        word = crc_table[7][low & 0xff] ^ crc_table[6][low >> 8 & 0xff] ^ crc_table[5][low >> 16 & 0xff] ^
               crc_table[4][low >> 24] ^ crc_table[3][data[4]] ^ crc_table[2][data[5]] ^ crc_table[1][data[6]] ^
               crc_table[0][data[7]];
    }
    for (; size; size--, data++)
        word = word >> 8 ^ crc_table[0][(word ^ *data) & 0xff];
    return ~word;
}

/* ---- calls of Python's, each NULL or -1 where what it asks for is not there ---- */

static int is_true(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    int answer = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return answer;
}

static int says(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_CallMethodObjArgs(object, name, NULL);
    int answer = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return answer;
}

static int whole(PyObject *value, long long *number)
{
    *number = value ? PyLong_AsLongLong(value) : -1;
    Py_XDECREF(value);
    return *number == -1 && PyErr_Occurred() ? -1 : value ? 0 : -1;
}

static int number_of(PyObject *object, PyObject *name, long long *number)
{
    return whole(PyObject_GetAttr(object, name), number);
}

static int called(PyObject *object, PyObject *name, long long *number)
{
    return whole(PyObject_CallMethodObjArgs(object, name, NULL), number);
}

static int address_of(PyObject *tensor, unsigned long long *address)
{
    PyObject *value = PyObject_CallMethodObjArgs(tensor, s_data_ptr, NULL);
    if (!value)
        return -1;
    *address = PyLong_AsUnsignedLongLong(value);
    Py_DECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

static int add_to(PyObject *object, PyObject *name, long long more)
{
    long long count;
    PyObject *value;
    int failed;
    if (number_of(object, name, &count) || !(value = PyLong_FromLongLong(count + more)))
        return -1;
    failed = PyObject_SetAttr(object, name, value);
    Py_DECREF(value);
    return failed;
}

/* Whether an attribute is this object. */
static int holds(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (!value)
        return -1;
    Py_DECREF(value);
    return value == wanted;
}

/* A borrowed value of a dictionary for the address of an object. */
static PyObject *of_address(PyObject *dictionary, const void *address)
{
    PyObject *key = PyLong_FromVoidPtr((void *)address), *found;
    if (!key)
        return NULL;
    found = PyDict_GetItemWithError(dictionary, key);
    Py_DECREF(key);
    return found;
}

/* These hold nothing that could hold them: the garbage collector would only walk over them, again and again. */
static PyObject *untracked(PyObject *object)
{
    if (object)
        PyObject_GC_UnTrack(object);
    return object;
}

static const char *utf8(PyObject *text)
{
    const char *data = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    return data ? data : "";
}

/* Whether there is room for so much more. */
static int grown(text_t *text, size_t more)
{
    size_t held = text->held ? text->held : 1 << 12;
    char *larger;
    if (text->size + more <= text->held)
        return 1;
    while (held < text->size + more)
        held *= 2;
    if (!(larger = realloc(text->text, held)))
        return 0;
    text->text = larger;
    text->held = held;
    return 1;
}

static int add_bytes(text_t *text, const char *data, size_t size)
{
    if (!grown(text, size))
        return -1;
    memcpy(text->text + text->size, data, size);
    text->size += size;
    return 0;
}

static int add_chars(text_t *text, const char *data)
{
    return add_bytes(text, data, strlen(data));
}

static int add_unicode(text_t *text, PyObject *value)
{
    Py_ssize_t size;
    const char *data = value ? PyUnicode_AsUTF8AndSize(value, &size) : NULL;
    return data ? add_bytes(text, data, (size_t)size) : -1;
}

static int add_whole(text_t *text, long long number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", number);
    return add_chars(text, digits);
}

/* ---- the form of a tensor ---- */

typedef struct {
    int dims, is_contiguous, fills;
    long long sizes[MOST_DIMS], strides[MOST_DIMS], count, offset;
} form_t;

static int longs_of(PyObject *tuple, long long *values)
{
    Py_ssize_t size = tuple ? PyTuple_Size(tuple) : -1;
    if (size < 0 || size > MOST_DIMS)
        return -1;
    for (Py_ssize_t i = 0; i < size; i++) {
        values[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (values[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)size;
}

/* Axes in the order of memory, as sgsdump_torch_tensors.in_memory_order has them. */
static void in_memory_order(const form_t *form, int *axes)
{
    for (int i = 0; i < form->dims; i++) {
        int at = i;
        for (; at > 0; at--) {
            int before = axes[at - 1];
            if (form->strides[before] > form->strides[i] ||
                (form->strides[before] == form->strides[i] && form->sizes[before] >= form->sizes[i]))
                break;
            axes[at] = before;
        }
        axes[at] = i;
    }
}

static int fills_its_memory(const form_t *form)
{
    int axes[MOST_DIMS];
    long long expected = 1;
    in_memory_order(form, axes);
    for (int i = form->dims - 1; i >= 0; i--) {
        if (form->sizes[axes[i]] == 1)
            continue;
        if (form->strides[axes[i]] != expected)
            return 0;
        expected *= form->sizes[axes[i]];
    }
    return 1;
}

/* ``*strides`` may be NULL before; it is looked up for a view, and where the elements are not in C order. */
static int form_of(PyObject *tensor, PyObject *shape, int is_view, PyObject **strides, form_t *form)
{
    form->offset = 0;
    form->count = 1;
    form->dims = longs_of(shape, form->sizes);
    for (int i = 0; i < form->dims; i++)
        form->count *= form->sizes[i];
    if (form->dims < 0 || form->count < 1 || (form->is_contiguous = says(tensor, s_is_contiguous)) < 0)
        return -1;
    if (is_view || !form->is_contiguous) {
        *strides = untracked(PyObject_CallMethodObjArgs(tensor, s_stride, NULL));
        if (longs_of(*strides, form->strides) != form->dims)
            return -1;
    }
    if (is_view && called(tensor, s_storage_offset, &form->offset))
        return -1;
    form->fills = form->is_contiguous || fills_its_memory(form);
    return 0;
}

/* Whether a tensor has elements in the CPU's memory, with no flag that changes how they are read. */
static int is_ordinary(ordinary_t *self, PyObject *tensor)
{
    PyObject *type = (PyObject *)Py_TYPE(tensor);
    if (type != self->tensor_type && type != self->parameter_type)
        return 0;
    return is_true(tensor, s_is_cpu) == 1 && !is_true(tensor, s_is_nested) &&
           holds(tensor, s_layout, self->strided) == 1 && !is_true(tensor, s_is_meta) &&
           !is_true(tensor, s_is_quantized) && !says(tensor, s__is_zerotensor) && !says(tensor, s_is_neg) &&
           !says(tensor, s_is_conj) && !says(tensor, s_is_inference);
}

/* ---- statistics ---- */

/* The elements of a view one after the other, in the order of memory; malloc'ed. */
static char *copied(const char *data, const form_t *form, int width)
{
    int axes[MOST_DIMS];
    long long at[MOST_DIMS] = {0}, offset = 0;
    char *copy = malloc((size_t)(form->count * width));
    if (!copy)
        return NULL;
    in_memory_order(form, axes);
    for (long long i = 0; i < form->count; i++) {
        memcpy(copy + i * width, data + offset * width, (size_t)width);
        for (int axis = form->dims - 1; axis >= 0; axis--) {
            int own = axes[axis];
            offset += form->strides[own];
            if (++at[own] < form->sizes[own])
                break;
            offset -= form->strides[own] * form->sizes[own];
            at[own] = 0;
        }
    }
    return copy;
}

/* As sgsdump_torch_statistics.statistics; NULL without an exception for what it has to do. */
static PyObject *figures_of(ordinary_t *self, PyObject *tensor, const form_t *form, int kind)
{
    unsigned long long address;
    figures_t figures;
    int done, width = kind == FLOAT32 ? 4 : 2;
    if (!form->fills && form->count > MOST_COPIED)
        return NULL; /* operators of torch's bring it into order, which nobody may see */
    if (form->fills && form->count >= MANY)
        return PyObject_CallFunctionObjArgs(self->statistics, tensor, NULL);
    if (address_of(tensor, &address))
        return NULL;
    if (form->fills)
        done = sums_of_elements((const char *)(uintptr_t)address, (size_t)form->count, kind, &figures);
    else {
        char *copy = copied((const char *)(uintptr_t)address, form, width);
        done = copy && sums_of_elements(copy, (size_t)form->count, kind, &figures);
        free(copy);
    }
    if (!done)
        return NULL;
    return untracked(Py_BuildValue("dddd", (double)figures.most, (double)figures.least,
                                   figures.sum / (double)form->count, sqrt(figures.squares)));
}

/* As sgsdump_records.figures_text; NULL where one is infinite or NaN. */
static PyObject *text_of_figures(PyObject *figures)
{
    char text[256], *words[4] = {NULL};
    PyObject *result = NULL;
    int size = 0;
    for (int i = 0; i < 4; i++) {
        double value = PyFloat_AsDouble(PyTuple_GetItem(figures, i));
        if (!isfinite(value) || !(words[i] = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL)))
            goto end;
    }
    size = snprintf(text, sizeof text, "{\"max\": %s, \"min\": %s, \"mean\": %s, \"l2norm\": %s}", words[0], words[1],
                    words[2], words[3]);
    if (size > 0 && size < (int)sizeof text)
        result = PyUnicode_FromStringAndSize(text, size);
end:
    for (int i = 0; i < 4; i++)
        PyMem_Free(words[i]);
    return result;
}

/* ---- records ---- */

/* A borrowed record of a tensor that was met in this round, or whose weight was in the last, where it is as it was. */
static PyObject *met_as_it_was(PyObject *entry, PyObject *tensor)
{
    PyObject *value;
    long long version;
    unsigned long long address;
    int same;
    if (PyWeakref_GetObject(PyTuple_GetItem(entry, 0)) != tensor)
        return NULL;
    if (is_true(PyTuple_GetItem(entry, 4), s_current) != 1)
        return NULL;
    if (number_of(tensor, s__version, &version) || version != PyLong_AsLongLong(PyTuple_GetItem(entry, 1)))
        return NULL;
    if (address_of(tensor, &address) || address != PyLong_AsUnsignedLongLong(PyTuple_GetItem(entry, 2)))
        return NULL;
    if (!(value = PyObject_GetAttr(tensor, s_shape)))
        return NULL;
    same = PyObject_RichCompareBool(value, PyTuple_GetItem(entry, 3), Py_EQ);
    Py_DECREF(value);
    return same == 1 ? PyTuple_GetItem(entry, 4) : NULL;
}

/* As TensorLookup.add; the entry, borrowed. */
static PyObject *met(ordinary_t *self, PyObject *tensor, PyObject *record, PyObject *shape, PyObject *strides)
{
    PyObject *entry = NULL, *key = NULL, *reference = NULL, *version = NULL, *address = NULL, *lookup = NULL;
    PyObject *known = NULL, *weight = NULL, *dtype = NULL, *of_weight = NULL;
    int done = 0;
    if ((key = PyLong_FromVoidPtr(tensor)) && (reference = untracked(PyWeakref_NewRef(tensor, NULL))) &&
        (version = PyObject_GetAttr(tensor, s__version)) &&
        (address = PyObject_CallMethodObjArgs(tensor, s_data_ptr, NULL)) &&
        (entry = untracked(PyTuple_Pack(5, reference, version, address, shape, record))) &&
        (lookup = PyObject_GetAttr(self->round, s_lookup)) && (known = PyObject_GetAttr(lookup, s_met)) &&
        !PyDict_SetItem(known, key, entry) && (weight = PyObject_GetAttr(record, s_weight)))
        done = 1;
    if (done && PyObject_IsTrue(weight)) {
        Py_CLEAR(known);
        done = strides && (dtype = PyObject_GetAttr(tensor, s_dtype)) &&
               (of_weight = PyTuple_Pack(3, entry, strides, dtype)) &&
               (known = PyObject_GetAttr(lookup, s__weights)) && !PyDict_SetItem(known, key, of_weight);
    }
    Py_XDECREF(key), Py_XDECREF(reference), Py_XDECREF(version), Py_XDECREF(address), Py_XDECREF(lookup);
    Py_XDECREF(known), Py_XDECREF(weight), Py_XDECREF(dtype), Py_XDECREF(of_weight);
    Py_XDECREF(entry); /* the dictionary holds it */
    return done ? entry : NULL;
}

/* As ValueRecord: values without statistics. */
static PyObject *new_record(ordinary_t *self, PyObject *tensor, PyObject *storage, PyObject *shape)
{
    PyObject *arguments = PyTuple_New(0), *record = NULL, *number = NULL, *word = NULL, *dtype = NULL, *facts = NULL;
    newfunc make = (newfunc)PyType_GetSlot((PyTypeObject *)self->record_type, Py_tp_new);
    PyObject *none[] = {s_device, s_stored, s_first, s_era, s_text, s_told, s_checksum, s_figures, s_round, s_sample,
                        s_version};
    int failed = 1;
    if (!arguments || !(record = make((PyTypeObject *)self->record_type, arguments, NULL)) ||
        !(number = PyIter_Next(self->identities)) || !(word = PyObject_Str(number)) ||
        !(dtype = PyObject_GetAttr(tensor, s_dtype)) || !(facts = PyDict_GetItemWithError(self->kinds, dtype)))
        goto end;
    failed = 0;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        failed |= PyObject_SetAttr(record, none[i], Py_None);
    failed |= PyObject_SetAttr(record, s_dtype, PyTuple_GetItem(facts, 1)) || PyObject_SetAttr(record, s_shape, shape) ||
              PyObject_SetAttr(record, s_number, number) || PyObject_SetAttr(record, s_word, word) ||
              PyObject_SetAttr(record, s_weight, s_empty) || PyObject_SetAttr(record, s_why, s_empty) ||
              PyObject_SetAttr(record, s_unwritten, Py_False) || PyObject_SetAttr(record, s_parts, arguments) ||
              PyObject_SetAttr(record, s_stats, s_empty) || PyObject_SetAttr(record, s_beyond, Py_False) ||
              PyObject_SetAttr(record, s_current, Py_True) || PyObject_SetAttr(record, s_storage, storage);
end:
    Py_XDECREF(arguments), Py_XDECREF(number), Py_XDECREF(word), Py_XDECREF(dtype);
    if (failed)
        Py_CLEAR(record);
    return untracked(record);
}

/* Whether a record's name of a weight is the one that its memory's owner gives a tensor of this shape. */
static int belongs(ordinary_t *self, PyObject *storage, PyObject *record, PyObject *shape)
{
    PyObject *owner = PyDict_GetItemWithError(self->owners, storage), *weight = PyObject_GetAttr(record, s_weight);
    PyObject *wanted = s_empty;
    int same;
    if (owner && PyObject_RichCompareBool(PyTuple_GetItem(owner, 2), shape, Py_EQ) == 1)
        wanted = PyTuple_GetItem(owner, 1);
    same = weight ? PyObject_RichCompareBool(weight, wanted, Py_EQ) : -1;
    Py_XDECREF(weight);
    return same == 1;
}

/* Give a record its statistics, as Taking.with_statistics; 0 where Python has to. ``memory`` is its storage's, NULL of
 * one that is not known yet. */
static int with_statistics(ordinary_t *self, PyObject *record, PyObject *tensor, PyObject *memory, const form_t *form)
{
    PyObject *round = PyObject_GetAttr(record, s_round), *at = PyObject_GetAttr(record, s_version);
    PyObject *counted = PyObject_GetAttr(tensor, s__version), *storage = PyObject_GetAttr(record, s_storage);
    PyObject *dtype = PyObject_GetAttr(tensor, s_dtype), *facts = dtype ? PyDict_GetItemWithError(self->kinds, dtype) : NULL;
    PyObject *figures = NULL, *text = NULL, *sample = NULL, *before = NULL, *span = NULL, *spans = NULL, *taken = NULL;
    unsigned long long address;
    long long version, earlier = -1;
    int done = 0, kind, width, stands = 0;
    if (!round || !at || !counted || !storage || !facts)
        goto end;
    kind = (int)PyLong_AsLong(PyTuple_GetItem(facts, 0));
    version = PyLong_AsLongLong(counted);
    if (at != Py_None) {
        earlier = PyLong_AsLongLong(at);
        stands = version == earlier || version == 0;
    }
    if (round == self->mark && stands) {
        done = 1;
        goto end;
    }
    if (kind < 0)
        goto end;
    width = kind == FLOAT32 ? 4 : 2;
    if (round != Py_None || (storage != Py_None && PyDict_GetItemWithError(self->owners, storage))) {
        if (!form->fills || address_of(tensor, &address) || !(before = PyObject_GetAttr(record, s_sample)))
            goto end;
        sample = sample_of_memory((const char *)(uintptr_t)address, (size_t)(form->count * width));
        if (!sample)
            goto end;
    }
    if (!sample || !stands || before == Py_None || PyObject_RichCompareBool(sample, before, Py_EQ) != 1) {
        if (memory && form->fills) {
            PyObject *entry, *of_span;
            span = Py_BuildValue("(LLO)", form->offset, form->count, dtype);
            spans = PyObject_GetAttr(memory, s_figures);
            if (!span || !spans)
                goto end;
            entry = PyDict_GetItemWithError(spans, span);
            if (entry && PyTuple_GetItem(entry, 0) == self->mark && (of_span = PyTuple_GetItem(entry, 1)) != Py_None) {
                long long then = PyLong_AsLongLong(of_span);
                if (version == then || version == 0) {
                    figures = PyTuple_GetItem(entry, 2);
                    Py_INCREF(figures);
                }
            }
        }
        if (!figures) {
            if (!(figures = figures_of(self, tensor, form, kind)))
                goto end;
            if (span) {
                if (!(taken = PyTuple_Pack(3, self->mark, counted, figures)) || PyDict_SetItem(spans, span, taken))
                    goto end;
            }
        }
        if (!PyTuple_Check(figures))
            goto end;
        if (round != Py_None) {
            PyObject *old = PyObject_GetAttr(record, s_figures);
            int same = old ? PyObject_RichCompareBool(figures, old, Py_EQ) : -1;
            Py_XDECREF(old);
            if (same != 1)
                goto end; /* other values are where these were */
        } else if (!(text = text_of_figures(figures)) || PyObject_SetAttr(record, s_stats, text) ||
                   PyObject_SetAttr(record, s_figures, figures) || PyObject_SetAttr(record, s_text, Py_None) ||
                   PyObject_SetAttr(record, s_told, Py_None))
            goto end;
    }
    if (PyObject_SetAttr(record, s_sample, sample ? sample : Py_None) || PyObject_SetAttr(record, s_round, self->mark))
        goto end;
    /* counted or record.version or counted */
    done = !PyObject_SetAttr(record, s_version, version || at == Py_None || !earlier ? counted : at);
end:
    Py_XDECREF(round), Py_XDECREF(at), Py_XDECREF(counted), Py_XDECREF(storage), Py_XDECREF(dtype), Py_XDECREF(figures);
    Py_XDECREF(text), Py_XDECREF(sample), Py_XDECREF(before), Py_XDECREF(span), Py_XDECREF(spans), Py_XDECREF(taken);
    return done;
}

/* Whether every element is in the memory that the storage has now. */
static int lies_in(PyObject *storage, const form_t *form, int width)
{
    long long bytes, last = form->count;
    if (called(storage, s_nbytes, &bytes))
        return 0;
    if (!form->is_contiguous) {
        last = 1;
        for (int i = 0; i < form->dims; i++)
            last += (form->sizes[i] - 1) * form->strides[i];
    }
    return (form->offset + last) * width <= bytes;
}

/* What is pending and still lives is looked up. */
static int flushed(ordinary_t *self)
{
    PyObject *done = PyObject_CallFunctionObjArgs(self->flush, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

/* The memory of a record's tensor gets known. */
static int registered(ordinary_t *self, PyObject *tensor, PyObject *record)
{
    PyObject *done = PyObject_CallFunctionObjArgs(self->register_, tensor, record, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

/* A new reference to the record of a tensor with its statistics, which is met from now on; NULL where Python has to
 * find it. ``is_new``: an operator has just made it, with memory of its own. */
static PyObject *described(ordinary_t *self, PyObject *tensor, int is_new)
{
    PyObject *entry, *record = NULL, *shape = NULL, *strides = NULL, *storage = NULL, *number = NULL, *memory = NULL;
    PyObject *dtype = NULL, *facts, *view = NULL, *records = NULL, *lookup, *known, *earlier = NULL;
    form_t form;
    int done = 0, width, is_other = 0;
    if (!(lookup = PyObject_GetAttr(self->round, s_lookup)))
        return NULL;
    known = PyObject_GetAttr(lookup, s_met);
    entry = known ? of_address(known, tensor) : NULL;
    Py_XDECREF(known);
    if (entry && (record = met_as_it_was(entry, tensor))) {
        Py_DECREF(lookup);
        Py_INCREF(record);
        return record;
    }
    if (PyErr_Occurred() || !is_ordinary(self, tensor) || !(dtype = PyObject_GetAttr(tensor, s_dtype)) ||
        !(facts = PyDict_GetItemWithError(self->kinds, dtype)) || !(shape = untracked(PyObject_GetAttr(tensor, s_shape))))
        goto end;
    width = PyLong_AsLong(PyTuple_GetItem(facts, 0)) == FLOAT32 ? 4 : 2;
    if (form_of(tensor, shape, !is_new, &strides, &form))
        goto end;
    if (is_new) {
        record = new_record(self, tensor, Py_None, shape);
        if (!record || !with_statistics(self, record, tensor, NULL, &form))
            goto end;
        entry = met(self, tensor, record, shape, NULL);
        done = entry && !PyList_Append(self->pending, entry) &&
               (PyList_Size(self->pending) < MOST_PENDING || flushed(self));
        goto end;
    }
    if (!(storage = PyObject_CallMethodObjArgs(tensor, s_untyped_storage, NULL)) || !lies_in(storage, &form, width))
        goto end;
    earlier = PyObject_GetAttr(lookup, s__last);
    entry = earlier ? of_address(earlier, tensor) : NULL;
    if (entry && PyTuple_Size(entry) == 3 && PyTuple_GetItem(entry, 2) == dtype &&
        PyObject_RichCompareBool(PyTuple_GetItem(entry, 1), strides, Py_EQ) == 1 &&
        (record = met_as_it_was(PyTuple_GetItem(entry, 0), tensor))) {
        Py_INCREF(record);
        if (!(number = PyObject_GetAttr(record, s_storage)) || number == Py_None ||
            !(memory = PyDict_GetItemWithError(self->of_storage, number)))
            goto end;
    } else {
        PyErr_Clear();
        if (!(number = PyObject_GetAttr(storage, s__cdata)))
            goto end;
        memory = PyDict_GetItemWithError(self->of_storage, number);
        if (!memory && PyList_Size(self->pending) > 0) {
            if (!flushed(self))
                goto end;
            memory = PyDict_GetItemWithError(self->of_storage, number);
        }
        if (!memory) {
            /* what made it was not seen */
            if (PyErr_Occurred() || PyDict_GetItemWithError(self->owners, number) ||
                !(record = new_record(self, tensor, Py_None, shape)) ||
                !with_statistics(self, record, tensor, NULL, &form))
                goto end;
            done = registered(self, tensor, record) && met(self, tensor, record, shape, strides);
            goto end;
        }
        if (!(records = PyObject_GetAttr(memory, s_records)) ||
            !(view = untracked(Py_BuildValue("(LOOOOO)", form.offset, shape, strides, dtype, Py_False, Py_False))))
            goto end;
        record = PyDict_GetItemWithError(records, view);
        Py_XINCREF(record);
        if (!record) {
            PyObject *writers = PyObject_GetAttr(memory, s_writers);
            is_other = !writers || PyList_Size(writers) != 0;
            Py_XDECREF(writers);
            if (is_other || !(record = new_record(self, tensor, number, shape)) || PyDict_SetItem(records, view, record))
                goto end;
        }
    }
    if (!belongs(self, number, record, shape) || is_true(record, s_unwritten) || is_true(record, s_current) != 1)
        goto end;
    Py_INCREF(memory);
    done = with_statistics(self, record, tensor, memory, &form) && met(self, tensor, record, shape, strides);
    Py_DECREF(memory);
end:
    Py_XDECREF(lookup), Py_XDECREF(shape), Py_XDECREF(strides), Py_XDECREF(storage), Py_XDECREF(number);
    Py_XDECREF(dtype), Py_XDECREF(view), Py_XDECREF(records), Py_XDECREF(earlier);
    if (!done)
        Py_CLEAR(record);
    return record;
}

/* As Lines._described, of values that have statistics. */
static PyObject *text_of_record(ordinary_t *self, PyObject *record)
{
    PyObject *word = PyObject_GetAttr(record, s_word), *dtype = PyObject_GetAttr(record, s_dtype);
    PyObject *shape = PyObject_GetAttr(record, s_shape), *stats = PyObject_GetAttr(record, s_stats);
    PyObject *parts = PyObject_GetAttr(record, s_parts), *weight = PyObject_GetAttr(record, s_weight), *text = NULL;
    long long sizes[MOST_DIMS];
    char list[MOST_DIMS * 22 + 2] = "", line[1024];
    int dims = longs_of(shape, sizes), used = 0;
    if (word && dtype && stats && parts && weight && dims >= 0 && PyUnicode_GetLength(stats) > 0 &&
        PyTuple_Size(parts) == 0 && PyUnicode_GetLength(weight) == 0 && !is_true(record, s_beyond) &&
        holds(record, s_device, Py_None) == 1 && holds(record, s_why, s_empty) == 1) {
        for (int i = 0; i < dims; i++)
            used += snprintf(list + used, sizeof list - (size_t)used, i ? ", %lld" : "%lld", sizes[i]);
        used = snprintf(line, sizeof line, "{\"value\": %s, \"dtype\": \"%s\", \"shape\": [%s], \"stats\": %s, \"device\": %s}",
                        utf8(word), utf8(dtype), list, utf8(stats), self->device_text);
        if (used > 0 && used < (int)sizeof line)
            text = PyUnicode_FromStringAndSize(line, used);
    }
    Py_XDECREF(word), Py_XDECREF(dtype), Py_XDECREF(shape), Py_XDECREF(stats), Py_XDECREF(parts), Py_XDECREF(weight);
    return text;
}

/* As Lines.tensor: a new reference to what a line says of a record; NULL where Python has to say it. */
static PyObject *told_of(ordinary_t *self, PyObject *record)
{
    PyObject *told = PyObject_GetAttr(record, s_told), *text = NULL;
    int is_told, of_time = holds(record, s_era, self->time);
    if (!told || of_time < 0 || is_true(record, s_unwritten))
        goto end;
    is_told = of_time && told != Py_None && PyObject_RichCompareBool(told, self->step, Py_EQ) == 1;
    if (is_told) {
        text = PyObject_GetAttr(record, s_word);
        goto end;
    }
    if (self->news >= MOST_TENSORS || !(text = PyObject_GetAttr(record, s_text)))
        goto end;
    if (text == Py_None || !of_time) {
        Py_DECREF(text);
        text = text_of_record(self, record);
        if (!text || PyObject_SetAttr(record, s_text, text) || PyObject_SetAttr(record, s_era, self->time))
            goto fail;
    }
    if (PyObject_SetAttr(record, s_told, self->step))
        goto fail;
    Py_INCREF(record);
    self->told[self->news++] = record;
    goto end;
fail:
    Py_CLEAR(text);
end:
    Py_XDECREF(told);
    return text;
}

/* What was told in this call was not written after all: Python tells it. */
static void untell(ordinary_t *self, int undo)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (int i = 0; i < self->news; i++) {
        if (undo)
            PyObject_SetAttr(self->told[i], s_told, Py_None);
        Py_CLEAR(self->told[i]);
    }
    self->news = 0;
    PyErr_Restore(type, value, trace);
}

static void forget(ordinary_t *self)
{
    Py_CLEAR(self->operator);
    Py_CLEAR(self->key);
    Py_CLEAR(self->text);
    for (int i = 0; i < self->tensors; i++) {
        Py_CLEAR(self->inputs[i]);
        Py_CLEAR(self->records[i]);
    }
    self->tensors = 0;
}

/* ---- lines ---- */

#define HEAD 8 /* bytes before the text of a frame */

/* Python's lines wait no longer: what is said from here on comes after them. */
static int drain(ordinary_t *self)
{
    PyObject *lines = PyObject_GetAttr(self->round, s_lines);
    Py_ssize_t size = lines ? PyList_Size(lines) : -1;
    int failed = size < 0;
    if (!self->waiting.size)
        failed |= add_bytes(&self->waiting, "\0\0\0\0\0\0\0\0", HEAD);
    for (Py_ssize_t i = 0; i < size && !failed; i++)
        failed = add_unicode(&self->waiting, PyList_GetItem(lines, i));
    if (size > 0 && !failed)
        failed = PyList_SetSlice(lines, 0, size, NULL);
    Py_XDECREF(lines);
    return failed ? -1 : 0;
}

/* What stands before an operator's first line in a round: its number there, and what it is. */
static int add_place(ordinary_t *self, PyObject *operator)
{
    PyObject *told, *numbers, *form = NULL;
    size_t start = self->waiting.size;
    long long before, number;
    int failed = 1;
    if (holds(operator, s_index, self->round_index) == 1)
        return 0;
    told = PyObject_GetAttr(operator, s__told);
    numbers = PyObject_GetAttr(self->round_index, s_numbers);
    if (told && numbers && (number = PyLong_AsLongLong(numbers)) >= 0 && !add_chars(&self->waiting, "{\"place\": ") &&
        !add_whole(&self->waiting, number) && !add_chars(&self->waiting, ", ") && !add_unicode(&self->waiting, told) &&
        !number_of(self->round_index, s__form, &before) &&
        (form = PyLong_FromUnsignedLong(
             crc32_of((uint32_t)before, self->waiting.text + start, self->waiting.size - start))))
        failed = PyObject_SetAttr(operator, s_number, numbers) || add_to(self->round_index, s_numbers, 1) ||
                 PyObject_SetAttr(self->round_index, s__form, form) ||
                 PyObject_SetAttr(operator, s_index, self->round_index);
    Py_XDECREF(told), Py_XDECREF(numbers), Py_XDECREF(form);
    if (failed)
        self->waiting.size = start;
    return failed ? -1 : 0;
}

/* The line of an operator's inputs or outputs, of which ``words`` tells. */
static int add_line(ordinary_t *self, PyObject *operator, int is_input, int count)
{
    text_t *text = &self->waiting;
    size_t start = text->size;
    long long number;
    if (number_of(operator, s_number, &number) || add_chars(text, "{\"step\": ") || add_chars(text, self->step_text) ||
        add_chars(text, ", \"at\": ") || add_whole(text, number) ||
        add_chars(text, is_input ? ", \"side\": \"in\", \"moment\": \"before\", \"values\": ["
                                 : ", \"side\": \"out\", \"moment\": \"after\", \"values\": [") ||
        add_bytes(text, self->words.text, self->words.size) || add_chars(text, "]}\n") ||
        add_to(self->round_index, s_tensors, count)) {
        text->size = start;
        return -1;
    }
    return 0;
}

/* The line of an operator that ran; ``param`` is the text on its arguments. */
static int add_operator(ordinary_t *self, PyObject *operator, const char *param)
{
    text_t *text = &self->waiting;
    size_t start = text->size;
    long long number;
    if (number_of(operator, s_number, &number) || add_chars(text, "{\"step\": ") || add_chars(text, self->step_text) ||
        add_chars(text, ", \"at\": ") || add_whole(text, number) || add_chars(text, ", \"event\": \"operator\", \"param\": ") ||
        add_chars(text, param) || add_chars(text, ", \"nanoseconds\": null}\n") ||
        add_to(self->round_index, s_operators, 1)) {
        text->size = start;
        return -1;
    }
    return 0;
}

/* What waits, as a str; nothing waits any more. */
static PyObject *taken_text(ordinary_t *self)
{
    size_t size = self->waiting.size;
    self->waiting.size = 0;
    return size > HEAD ? PyUnicode_FromStringAndSize(self->waiting.text + HEAD, (Py_ssize_t)(size - HEAD))
                       : PyUnicode_FromStringAndSize("", 0);
}

/* Write the lines that wait, as Round.say writes them; where that is not just a piece more of its file, it does. */
static int say(ordinary_t *self)
{
    PyObject *text, *done, *file = NULL;
    long long number, written, held;
    size_t size = self->waiting.size;
    if (size <= HEAD)
        return 0;
#ifndef _WIN32
    file = PyObject_GetAttr(self->round_index, s__index);
    if (file && file != Py_None && size < MOST_TEXT && !number_of(file, s__number, &number) && number >= 0 &&
        !number_of(file, s_size, &written) && !number_of(file, s__held, &held) && written + (long long)size <= held) {
        char *frame = self->waiting.text;
        uint32_t head[2] = {(uint32_t)(size - HEAD), crc32_of(0, frame + HEAD, size - HEAD)};
        ssize_t gone;
        for (int i = 0; i < HEAD; i++)
            frame[i] = (char)(head[i / 4] >> i % 4 * 8);
        gone = write((int)number, frame, size);
        if (gone == (ssize_t)size) {
            int failed = add_to(file, s_size, (long long)size);
            Py_DECREF(file);
            self->waiting.size = 0;
            return failed;
        }
        if (gone > 0 && ftruncate((int)number, (off_t)written))
            PyErr_Clear(); /* Python meets the same, and says why */
    }
    PyErr_Clear();
#endif
    Py_XDECREF(file);
    if (!(text = taken_text(self)))
        return -1;
    done = PyObject_CallMethodObjArgs(self->round_index, s_say, text, NULL);
    Py_DECREF(text);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* ---- an operator ---- */

/* A list of whole numbers, or of tensors, as the key of arguments has it; tensors are added to the inputs. */
static PyObject *key_of_list(ordinary_t *self, PyObject *list)
{
    Py_ssize_t size = PyList_Size(list);
    PyObject *first = size ? PyList_GetItem(list, 0) : NULL, *type = first ? (PyObject *)Py_TYPE(first) : NULL;
    if (!first || PyLong_CheckExact(first)) {
        for (Py_ssize_t i = 0; i < size; i++)
            if (!PyLong_CheckExact(PyList_GetItem(list, i)))
                return NULL;
        return PyList_AsTuple(list);
    }
    if (type != self->tensor_type && type != self->parameter_type)
        return NULL;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PyList_GetItem(list, i);
        type = (PyObject *)Py_TYPE(item);
        if ((type != self->tensor_type && type != self->parameter_type) || self->tensors >= MOST_TENSORS)
            return NULL;
        Py_INCREF(item);
        self->inputs[self->tensors++] = item;
    }
    return Py_BuildValue("(On)", self->tensor_type, size);
}

/* The key of one argument, as Facts.read makes it. ``takes_tensor``: a number there stands for one. */
static PyObject *key_of(ordinary_t *self, PyObject *value, int takes_tensor)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    if (type == self->tensor_type || type == self->parameter_type) {
        if (self->tensors >= MOST_TENSORS)
            return NULL;
        Py_INCREF(value);
        self->inputs[self->tensors++] = value;
        Py_INCREF(self->tensor_type);
        return self->tensor_type;
    }
    if (PyList_CheckExact(value))
        return key_of_list(self, value);
    if (takes_tensor && value != Py_None)
        return NULL;
    if (value != Py_None && !PyBool_Check(value) && !PyLong_CheckExact(value) && !PyFloat_CheckExact(value) &&
        PySequence_Contains(self->constants, type) != 1)
        return NULL;
    return PyTuple_Pack(2, type, value);
}

/* The key of all arguments; the tensors among them are the inputs. */
static PyObject *key_of_arguments(ordinary_t *self, PyObject *args, PyObject *kwargs, unsigned long long mask)
{
    Py_ssize_t size = PyTuple_Size(args), more = kwargs && kwargs != Py_None ? PyDict_Size(kwargs) : 0, at = 0;
    PyObject *key = size < 64 ? PyTuple_New(size + more) : NULL, *name, *value;
    if (!key)
        return NULL;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *part = key_of(self, PyTuple_GetItem(args, i), (int)(mask >> i & 1));
        if (!part || PyTuple_SetItem(key, i, part))
            goto fail;
    }
    for (Py_ssize_t i = size; more && PyDict_Next(kwargs, &at, &name, &value); i++) {
        PyObject *type = (PyObject *)Py_TYPE(value), *part;
        if (value != Py_None && !PyBool_Check(value) && !PyLong_CheckExact(value) && !PyFloat_CheckExact(value) &&
            PySequence_Contains(self->constants, type) != 1)
            goto fail;
        part = PyTuple_Pack(3, name, type, value);
        if (!part || PyTuple_SetItem(key, i, part))
            goto fail;
    }
    return key;
fail:
    Py_DECREF(key);
    return NULL;
}

/* The operator that runs, as Round.begin_operator, a new reference, and how many of its name ran before. NULL
 * where it has not run there before, or is not among those that are dumped. */
static PyObject *operator_of(ordinary_t *self, PyObject *frame, PyObject *kind, PyObject *path, PyObject *name, long long *times)
{
    PyObject *outer = PyObject_GetAttr(frame, s_operator), *children = PyObject_GetAttr(frame, s_children);
    PyObject *again = NULL, *key = NULL, *found = NULL, *told = NULL, *chosen = NULL;
    int good = 0;
    *times = 0;
    if (!outer || !children || !name || !path)
        goto end;
    again = PyDict_GetItemWithError(self->names, name);
    if (again)
        *times = PyLong_AsLongLong(again);
    again = PyLong_FromLongLong(*times);
    key = again ? PyTuple_Pack(6, outer == Py_None ? self->model : outer, children, name, again, kind, path) : NULL;
    found = key ? PyDict_GetItemWithError(self->known, key) : NULL;
    if (!found)
        goto end;
    Py_INCREF(found);
    told = PyObject_GetAttr(found, s__told);
    chosen = PyObject_GetAttr(found, s_chosen);
    good = told && told != Py_None && chosen && PyTuple_GetItem(chosen, 0) == self->choice &&
           PyTuple_GetItem(chosen, 1) == Py_True;
end:
    Py_XDECREF(outer), Py_XDECREF(children), Py_XDECREF(again), Py_XDECREF(key), Py_XDECREF(told);
    Py_XDECREF(chosen);
    if (!good)
        Py_CLEAR(found);
    return found;
}

/* It has begun: the next of its name is another. */
static int counted(ordinary_t *self, PyObject *frame, PyObject *name, long long times)
{
    PyObject *next = PyLong_FromLongLong(times + 1);
    int failed = !next || PyDict_SetItem(self->names, name, next) || add_to(frame, s_children, 1);
    Py_XDECREF(next);
    return failed ? -1 : 0;
}

/* Whether the control is as it was, and nothing else is in force that changes what a tensor is. */
static int is_in_force(ordinary_t *self)
{
    PyObject *stopped, *value;
    long long modes;
    if (++self->since > OFTEN) {
        self->since = 0;
        return 0;
    }
    if (is_true(self->round, s_quiet) || holds(self->control, s_now, self->now) != 1 ||
        holds(self->control, s_choice, self->choice) != 1 || PyDict_Size(self->blanks) != 0)
        return 0;
    if (!(stopped = PyObject_GetAttr(self->control, s_stopped)))
        return 0;
    Py_DECREF(stopped);
    if (PyUnicode_GetLength(stopped) != 0 || whole(PyObject_CallFunctionObjArgs(self->function_modes, NULL), &modes) || modes)
        return 0;
    if (!(value = PyObject_CallFunctionObjArgs(self->transforms, NULL)))
        return 0;
    Py_DECREF(value);
    return value == Py_None;
}

/* What a line says of tensors, in ``words``, and their records; -1 where Python has to tell of one. */
static int all_told(ordinary_t *self, PyObject **tensors, PyObject **records, int count, int are_new)
{
    self->words.size = 0;
    for (int i = 0; i < count; i++) {
        PyObject *record = described(self, tensors[i], are_new), *word = record ? told_of(self, record) : NULL;
        int failed = !word || (i && add_bytes(&self->words, ", ", 2)) || add_unicode(&self->words, word);
        Py_XDECREF(word);
        if (records)
            records[i] = record;
        else
            Py_XDECREF(record);
        if (failed)
            return -1;
    }
    return 0;
}

static PyObject *frame_of(ordinary_t *self)
{
    Py_ssize_t depth = PyList_Size(self->frames);
    return depth > 0 ? PyList_GetItem(self->frames, depth - 1) : NULL;
}

/* begin(func, types, args, kwargs): True where the operator is told of from here; ``end(result)`` follows it. */
static PyObject *ordinary_begin(PyObject *given, PyObject *arguments)
{
    ordinary_t *self = (ordinary_t *)given;
    PyObject *func, *types, *args, *kwargs, *facts, *frame, *path = NULL, *name = NULL;
    long long times;
    int begun = 0;
    forget(self);
    if (!PyArg_ParseTuple(arguments, "OOOO:begin", &func, &types, &args, &kwargs))
        return NULL;
    if (PyTuple_Size(types) != 0 || !(facts = of_address(self->facts, func)) || facts == Py_None || !is_in_force(self))
        goto end;
    if (!(frame = frame_of(self)) || is_true(frame, s_opaque) || !(path = PyObject_GetAttr(frame, s_path)))
        goto end;
    self->is_view = PyObject_IsTrue(PyTuple_GetItem(facts, 4));
    self->key = key_of_arguments(self, args, kwargs, PyLong_AsUnsignedLongLongMask(PyTuple_GetItem(facts, 3)));
    self->text = self->key ? PyDict_GetItemWithError(PyTuple_GetItem(facts, 2), self->key) : NULL;
    if (!self->text)
        goto end;
    Py_INCREF(self->text);
    if (PyUnicode_GetLength(path))
        name = PyUnicode_Concat(path, PyTuple_GetItem(facts, 1));
    else {
        name = PyTuple_GetItem(facts, 5);
        Py_INCREF(name);
    }
    if (!(self->operator = operator_of(self, frame, PyTuple_GetItem(facts, 0), path, name, &times)))
        goto end;
    if (all_told(self, self->inputs, self->records, self->tensors, 0) || drain(self) || counted(self, frame, name, times))
        goto end;
    begun = 1;
    add_place(self, self->operator);
    if (self->tensors)
        add_line(self, self->operator, 1, self->tensors);
    say(self);
end:
    untell(self, !begun);
    PyErr_Clear();
    Py_XDECREF(name), Py_XDECREF(path);
    if (!begun)
        forget(self);
    return PyBool_FromLong(begun);
}

/* The tensors in the arguments or the results of a module, borrowed; -1 where there may be others. */
static int tensors_of(ordinary_t *self, PyObject *value, PyObject **tensors, int count, int depth)
{
    PyObject *type = (PyObject *)Py_TYPE(value), *name, *item;
    Py_ssize_t at = 0;
    if (type == self->tensor_type || type == self->parameter_type) {
        if (count >= MOST_TENSORS)
            return -1;
        tensors[count] = value;
        return count + 1;
    }
    if (PyTuple_CheckExact(value))
        for (; depth < 4 && at < PyTuple_Size(value) && count >= 0; at++)
            count = tensors_of(self, PyTuple_GetItem(value, at), tensors, count, depth + 1);
    else if (PyList_CheckExact(value))
        for (; depth < 4 && at < PyList_Size(value) && count >= 0; at++)
            count = tensors_of(self, PyList_GetItem(value, at), tensors, count, depth + 1);
    else if (PyDict_CheckExact(value))
        while (depth < 4 && count >= 0 && PyDict_Next(value, &at, &name, &item))
            count = tensors_of(self, item, tensors, count, depth + 1);
    else if (value != Py_None && !PyBool_Check(value) && !PyLong_CheckExact(value) && !PyFloat_CheckExact(value) &&
             PySequence_Contains(self->constants, type) != 1)
        return -1;
    return depth < 4 ? count : -1;
}

/* enter(module, args, kwargs): the operator of a module that begins, its inputs told of; None where Python has to. */
static PyObject *ordinary_enter(PyObject *given, PyObject *arguments)
{
    ordinary_t *self = (ordinary_t *)given;
    PyObject *module, *args, *kwargs, *frame, *path, *operator = NULL, *kind = NULL, *inner = NULL, *inputs[MOST_TENSORS];
    long long times;
    int count, begun = 0;
    if (!PyArg_ParseTuple(arguments, "OOO:enter", &module, &args, &kwargs))
        return NULL;
    if (!is_in_force(self) || !(path = of_address(self->paths, module)) || !(frame = frame_of(self)) ||
        !(kind = PyObject_GetAttr((PyObject *)Py_TYPE(module), s___name__)))
        goto end;
    count = tensors_of(self, args, inputs, 0, 0);
    if (count >= 0)
        count = tensors_of(self, kwargs, inputs, count, 0);
    if (count < 0 || !(operator = operator_of(self, frame, kind, path, path, &times)))
        goto end;
    for (int i = 0; i < count; i++)
        Py_INCREF(inputs[i]);
    begun = !all_told(self, inputs, NULL, count, 0) && !drain(self);
    for (int i = 0; i < count; i++)
        Py_DECREF(inputs[i]);
    if (!begun || !(inner = PyObject_CallFunctionObjArgs(self->frame_type, module, path, operator, NULL))) {
        begun = 0;
        goto end;
    }
    counted(self, frame, path, times);
    PyList_Append(self->frames, inner);
    add_place(self, operator);
    if (count)
        add_line(self, operator, 1, count);
end:
    untell(self, !begun);
    PyErr_Clear();
    Py_XDECREF(kind), Py_XDECREF(inner);
    if (begun)
        return operator;
    Py_XDECREF(operator);
    Py_INCREF(Py_None);
    return Py_None;
}

/* leave(operator, result): True where all is told of a module that came to its end. */
static PyObject *ordinary_leave(PyObject *given, PyObject *arguments)
{
    ordinary_t *self = (ordinary_t *)given;
    PyObject *operator, *result, *outputs[MOST_TENSORS];
    int count, told = 0;
    if (!PyArg_ParseTuple(arguments, "OO:leave", &operator, &result))
        return NULL;
    if (!is_in_force(self) || (count = tensors_of(self, result, outputs, 0, 0)) < 0)
        goto end;
    for (int i = 0; i < count; i++)
        Py_INCREF(outputs[i]);
    told = !all_told(self, outputs, NULL, count, 0) && !drain(self);
    for (int i = 0; i < count; i++)
        Py_DECREF(outputs[i]);
    if (!told)
        goto end;
    add_place(self, operator);
    if (count)
        add_line(self, operator, 0, count);
    add_operator(self, operator, "null");
end:
    untell(self, !told);
    PyErr_Clear();
    return PyBool_FromLong(told);
}

/* The memory of what a view shows gets known. */
static int with_storage(ordinary_t *self)
{
    for (int i = 0; i < self->tensors; i++) {
        int is_unknown = holds(self->records[i], s_storage, Py_None);
        if (is_unknown < 0 || (is_unknown && !registered(self, self->inputs[i], self->records[i])))
            return -1;
    }
    return 0;
}

/* Whether an operator's output lies where one of its inputs does: 1, 0, or -1. */
static int shares_memory(ordinary_t *self, PyObject *tensor)
{
    unsigned long long address, other;
    if (address_of(tensor, &address))
        return -1;
    for (int i = 0; i < self->tensors; i++) {
        if (address_of(self->inputs[i], &other))
            return -1;
        if (address == other)
            return 1;
    }
    return 0;
}

/* end(result): True where all is told of the operator that began; False where Python has to tell of its outputs. */
static PyObject *ordinary_end(PyObject *given, PyObject *result)
{
    ordinary_t *self = (ordinary_t *)given;
    PyObject *outputs[MOST_TENSORS];
    int count = 0, told = 0, is_view = self->is_view, is_list = PyTuple_CheckExact(result) || PyList_CheckExact(result);
    Py_ssize_t size = is_list ? PySequence_Size(result) : 1;
    if (!self->operator || PyDict_Size(self->blanks) != 0 || size > MOST_TENSORS)
        goto end;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = !is_list ? result : PyTuple_CheckExact(result) ? PyTuple_GetItem(result, i) : PyList_GetItem(result, i);
        if (!item || (PyObject *)Py_TYPE(item) != self->tensor_type)
            goto end;
        outputs[count++] = item;
    }
    for (int i = 0; i < count && !is_view; i++)
        if ((is_view = shares_memory(self, outputs[i])) < 0)
            goto end;
    if (!count || (is_view && with_storage(self)) || all_told(self, outputs, NULL, count, !is_view) || drain(self))
        goto end;
    told = 1;
    add_line(self, self->operator, 0, count);
    add_operator(self, self->operator, utf8(self->text));
end:
    untell(self, !told);
    PyErr_Clear();
    if (told)
        forget(self);
    return PyBool_FromLong(told);
}

/* told(tensors): of a list, a list of what a line says of each; None where Python has to tell of one. */
static PyObject *ordinary_told(PyObject *given, PyObject *list)
{
    ordinary_t *self = (ordinary_t *)given;
    Py_ssize_t size = PyList_CheckExact(list) ? PyList_Size(list) : 0;
    PyObject *words = NULL;
    if (size && size <= MOST_TENSORS && holds(self->control, s_now, self->now) == 1 && PyDict_Size(self->blanks) == 0)
        words = PyList_New(size);
    for (Py_ssize_t i = 0; words && i < size; i++) {
        PyObject *tensor = PyList_GetItem(list, i), *record = described(self, tensor, 0);
        PyObject *word = record ? told_of(self, record) : NULL;
        Py_XDECREF(record);
        if (!word || PyList_SetItem(words, i, word))
            Py_CLEAR(words);
    }
    untell(self, !words);
    PyErr_Clear();
    if (words)
        return words;
    Py_INCREF(Py_None);
    return Py_None;
}

/* waiting(): the lines that are still to be written, which are the caller's now. */
static PyObject *ordinary_waiting(PyObject *given, PyObject *unused)
{
    (void)unused;
    return taken_text((ordinary_t *)given);
}

/* running(): the operator that began, and the key of its arguments. */
static PyObject *ordinary_running(PyObject *given, PyObject *unused)
{
    ordinary_t *self = (ordinary_t *)given;
    (void)unused;
    if (!self->operator || !self->key)
        return Py_BuildValue("(OO)", Py_None, Py_None);
    return Py_BuildValue("(OO)", self->operator, self->key);
}

/* ---- the type ---- */

static int clear(PyObject *given)
{
    ordinary_t *self = (ordinary_t *)given;
    untell(self, 0);
    forget(self);
#define CLEAR(name) Py_CLEAR(self->name);
    FIELDS(CLEAR)
    Py_CLEAR(self->now);
    Py_CLEAR(self->choice);
    free(self->waiting.text), free(self->words.text);
    memset(&self->waiting, 0, sizeof self->waiting);
    memset(&self->words, 0, sizeof self->words);
    return 0;
}

static int traverse(PyObject *given, visitproc visit, void *arg)
{
    ordinary_t *self = (ordinary_t *)given;
#define VISIT(name) Py_VISIT(self->name);
    FIELDS(VISIT)
    Py_VISIT(self->now);
    Py_VISIT(self->choice);
    Py_VISIT(self->operator);
    Py_VISIT(self->key);
    for (int i = 0; i < self->tensors; i++) {
        Py_VISIT(self->inputs[i]);
        Py_VISIT(self->records[i]);
    }
    Py_VISIT(Py_TYPE(given));
    return 0;
}

static void dealloc(PyObject *given)
{
    PyTypeObject *type = Py_TYPE(given);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(given);
    clear(given);
    release(given);
    Py_DECREF(type);
}

static PyObject *create(PyTypeObject *type, PyObject *arguments, PyObject *kwargs)
{
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    ordinary_t *self;
    Py_ssize_t at = 0;
    (void)kwargs;
#define COUNT(name) +1
    if (PyTuple_Size(arguments) != FIELDS(COUNT)) {
        PyErr_SetString(PyExc_TypeError, "Ordinary: another number of arguments");
        return NULL;
    }
    if (!(self = (ordinary_t *)make(type, 0)))
        return NULL;
#define TAKE(name)                                                                                                     \
    self->name = PyTuple_GetItem(arguments, at++);                                                                     \
    Py_INCREF(self->name);
    FIELDS(TAKE)
    self->now = PyObject_GetAttr(self->control, s_now);
    self->choice = PyObject_GetAttr(self->control, s_choice);
    snprintf(self->step_text, sizeof self->step_text, "%lld", PyLong_AsLongLong(self->step));
    snprintf(self->device_text, sizeof self->device_text, "%lld", PyLong_AsLongLong(self->file_device));
    if (!self->now || !self->choice || !PyDict_Check(self->facts) || !PyDict_Check(self->kinds) ||
        !PyDict_Check(self->of_storage) || !PyDict_Check(self->blanks) || !PyDict_Check(self->names) ||
        !PyDict_Check(self->known) || !PyDict_Check(self->paths) || !PyDict_Check(self->owners) || !PyList_Check(self->frames) ||
        !PyList_Check(self->pending) || !PyType_Check(self->record_type)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "Ordinary: an argument of another type");
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"begin", ordinary_begin, METH_VARARGS, "Whether it tells of an operator (func, types, args, kwargs), its inputs now."},
    {"end", ordinary_end, METH_O, "Whether it tells of the result of the operator that began."},
    {"enter", ordinary_enter, METH_VARARGS, "The operator of a module that begins (module, args, kwargs), or None."},
    {"leave", ordinary_leave, METH_VARARGS, "Whether it tells of the result of a module (operator, result)."},
    {"waiting", ordinary_waiting, METH_NOARGS, "The lines that are still to be written, which are the caller's now."},
    {"running", ordinary_running, METH_NOARGS, "The operator that began, and the key of its arguments."},
    {"told", ordinary_told, METH_O, "What a line says of each of a list of tensors; None where Python has to say it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "What a round's index says of ordinary operators."},
    {Py_tp_new, create},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    "sgsdump_kernel.Ordinary", sizeof(ordinary_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots,
};

int add_ordinary(PyObject *module)
{
    PyObject *type;
#define INTERN(name)                                                                                                   \
    if (!(s_##name = PyUnicode_InternFromString(#name)))                                                               \
        return -1;
    NAMES(INTERN)
    if (!(s_empty = PyUnicode_InternFromString("")) || !(type = PyType_FromSpec(&spec)))
        return -1;
    make_crc_table();
    return PyModule_AddObject(module, "Ordinary", type);
}
