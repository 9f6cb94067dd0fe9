/* libh5zstd.so: what HDF5 asks of a filter plugin. HDF5_PLUGIN_PATH=build/release h5dump
 * shard-00000.h5 */
#include <H5PLextern.h>

#include "formats/shard/h5_zstd.h"

H5PL_type_t H5PLget_plugin_type(void) { return H5PL_TYPE_FILTER; }

const void *H5PLget_plugin_info(void) { return &h5_zstd_class; }
