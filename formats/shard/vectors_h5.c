/* Prompt vectors in HDF5: see vectors_h5.h. */
#include "formats/shard/vectors_h5.h"

#include <hdf5.h>
#include <stdio.h>
#include <string.h>

#include "formats/shard/h5_error.h"

ckvc_status vectors_create(vectors_file *v, const char *path, bool force, ckvc_err *err) {
    v->file = -1;
    CKVC_TRY(h5_begin(err));
    CKVC_TRY(ckvc_publish_begin(&v->publish, path, force, err));
    H5_AUTO hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_sieve_buf_size(access, 0); /* H5Dwrite writes, and fails, not a close that nobody asks */
    H5_AUTO hid_t create = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_obj_track_times(create, false);
    H5Pset_file_locking(access, false, true); /* publish holds a lock on it already */
    v->file = H5Fcreate(v->publish.tmp_path, H5F_ACC_TRUNC, create, access);
    if (v->file >= 0) { return CKVC_OK; }
    vectors_abort(v);
    return ckvc_fail(err, CKVC_E_CREATE, "%s: cannot create the HDF5 file", path);
}

static bool write_floats(hid_t group, const char *name, int rank, const hsize_t *dims,
                         const float *values) {
    H5_AUTO hid_t space = H5Screate_simple(rank, dims, NULL);
    H5_AUTO hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(create, false);
    H5_AUTO hid_t set =
        H5Dcreate2(group, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT);
    return set >= 0 && H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
}

ckvc_status vectors_add(vectors_file *v, const prompt_vectors *p, ckvc_err *err) {
    char name[16];
    snprintf(name, sizeof name, "%05u", p->number);
    const hsize_t dims[3] = {p->L, p->G, p->T};
    H5_AUTO hid_t create = H5Pcreate(H5P_GROUP_CREATE);
    H5Pset_obj_track_times(create, false);
    H5_AUTO hid_t group = H5Gcreate2(v->file, name, H5P_DEFAULT, create, H5P_DEFAULT);
    H5_AUTO hid_t text = H5Tcopy(H5T_C_S1);
    H5_AUTO hid_t scalar = H5Screate(H5S_SCALAR);
    H5Tset_size(text, strlen(p->id) + 1);
    H5Tset_cset(text, H5T_CSET_UTF8);
    H5_AUTO hid_t attribute =
        group < 0 ? -1 : H5Acreate2(group, "id", text, scalar, H5P_DEFAULT, H5P_DEFAULT);
    const bool written = attribute >= 0 && H5Awrite(attribute, text, p->id) >= 0 &&
                         write_floats(group, "alpha", 1, &dims[2], p->alpha) &&
                         write_floats(group, "rho", 3, dims, p->rho);
    CKVC_FAIL_IF(!written, err, CKVC_E_IO, "%s: writing the vectors of prompt %u failed",
                 v->publish.path, p->number);
    return CKVC_OK;
}

ckvc_status vectors_commit(vectors_file *v, ckvc_err *err) {
    const herr_t closed = H5Fclose(v->file);
    v->file = -1;
    if (closed >= 0) { return ckvc_publish_commit(&v->publish, err); }
    const ckvc_status st =
        ckvc_fail(err, CKVC_E_IO, "%s: closing the HDF5 file failed", v->publish.path);
    vectors_abort(v);
    return st;
}

void vectors_abort(vectors_file *v) {
    if (v->file >= 0) { H5Fclose(v->file); }
    v->file = -1;
    if (v->publish.path) { ckvc_publish_abort(&v->publish); }
}
