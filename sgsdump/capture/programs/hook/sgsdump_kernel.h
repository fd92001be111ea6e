/* What the two sources of the compiled kernel of the hooks share. */

#ifndef SGSDUMP_KERNEL_H
#define SGSDUMP_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

enum { FLOAT32, FLOAT16, BFLOAT16, KINDS };

typedef struct {
    double sum, squares;
    float least, most;
} figures_t;

/* Of the elements that lie one after the other, by this thread alone; 0 where there is no memory for what is known of
 * their blocks. */
int sums_of_elements(const char *data, size_t count, int kind, figures_t *figures);
/* sgsdump_torch_statistics.sample_of, of elements that fill their memory. */
PyObject *sample_of_memory(const char *data, size_t size);
/* Adds the type Ordinary to a module; -1 with an exception where that fails. */
int add_ordinary(PyObject *module);

#endif
