/* Prompt vectors in HDF5: see vectors_h5.h. */
#include "formats/shard/vectors_h5.h"

#include <hdf5.h>
#include <stdio.h>
#include <string.h>

ckvc_status vectors_create(vectors_file *v, const char *path, bool force, ckvc_err *err) {
    v->file = -1;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    ckvc_status st = ckvc_publish_begin(&v->publish, path, force, err);
    if (st != CKVC_OK) { return st; }
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    v->file = H5Fcreate(v->publish.tmp_path, H5F_ACC_EXCL, H5P_DEFAULT, access);
    H5Pclose(access);
    if (v->file < 0) {
        vectors_abort(v);
        return ckvc_fail(err, CKVC_E_CREATE, "%s: cannot create the HDF5 file", path);
    }
    return CKVC_OK;
}

static bool write_floats(hid_t group, const char *name, int rank, const hsize_t *dims,
                         const float *values) {
    hid_t space = H5Screate_simple(rank, dims, NULL), create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(create, false);
    hid_t set = H5Dcreate2(group, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT);
    bool ok =
        set >= 0 && H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    H5Dclose(set);
    H5Pclose(create);
    H5Sclose(space);
    return ok;
}

ckvc_status vectors_add(vectors_file *v, uint32_t number, const char *id, uint32_t T, uint32_t L,
                        uint32_t G, const float *alpha, const float *rho, ckvc_err *err) {
    char name[16];
    snprintf(name, sizeof name, "%05u", number);
    hsize_t dims[3] = {L, G, T}, one[1] = {T};
    hid_t create = H5Pcreate(H5P_GROUP_CREATE);
    H5Pset_obj_track_times(create, false);
    hid_t group = H5Gcreate2(v->file, name, H5P_DEFAULT, create, H5P_DEFAULT);
    hid_t text = H5Tcopy(H5T_C_S1), scalar = H5Screate(H5S_SCALAR);
    H5Tset_size(text, strlen(id) + 1);
    H5Tset_cset(text, H5T_CSET_UTF8);
    hid_t attribute =
        group < 0 ? -1 : H5Acreate2(group, "id", text, scalar, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = attribute >= 0 && H5Awrite(attribute, text, id) >= 0 &&
              write_floats(group, "alpha", 1, one, alpha) &&
              write_floats(group, "rho", 3, dims, rho);
    H5Aclose(attribute);
    H5Sclose(scalar);
    H5Tclose(text);
    H5Gclose(group);
    H5Pclose(create);
    return ok ? CKVC_OK
              : ckvc_fail(err, CKVC_E_IO, "%s: writing the vectors of prompt %u failed",
                          v->publish.path, number);
}

ckvc_status vectors_commit(vectors_file *v, ckvc_err *err) {
    herr_t closed = H5Fclose(v->file);
    v->file = -1;
    if (closed < 0) {
        ckvc_status st =
            ckvc_fail(err, CKVC_E_IO, "%s: closing the HDF5 file failed", v->publish.path);
        vectors_abort(v);
        return st;
    }
    return ckvc_publish_commit(&v->publish, err);
}

void vectors_abort(vectors_file *v) {
    if (v->file >= 0) {
        H5Fclose(v->file);
        v->file = -1;
    }
    if (v->publish.path) { ckvc_publish_abort(&v->publish); }
}
