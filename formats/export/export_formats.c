/* The formats, in the order of EXPORT_NAMES: see export.h. */
#include "formats/export/export.h"

#include "formats/export/compilerkv.h"
#include "formats/export/gguf_table.h"
#include "formats/export/head_numbers.h"
#include "formats/export/npz.h"
#include "formats/export/record_lines.h"
#include "formats/export/safetensors_folder.h"

const exchange_format exchange_formats[] = {
    {.name = "safetensors",
     .holds = "a folder for a model hub: the whole table, config.json, a model card",
     .write_table = safetensors_folder_write,
     .read = safetensors_folder_read},
    {.name = "npz",
     .holds = "one file for numpy: the whole table",
     .write_table = npz_write,
     .read = npz_read},
    {.name = "compilerkv",
     .holds = "the paper's authors' folder: weights, thresholds and edges of a paper's table",
     .write_table = compilerkv_write,
     .read = compilerkv_read},
    {.name = "duo-attention",
     .holds = "its folder: one number a KV head, of full and streaming heads",
     .write_table = duo_attention_write,
     .read = duo_attention_read},
    {.name = "headkv",
     .holds = "its JSON: one score a query head",
     .write_table = headkv_write,
     .read = headkv_read},
    {.name = "kvzip",
     .holds = "one score a KV head, as .npy",
     .write_table = kvzip_write,
     .read = kvzip_read},
    {.name = "gguf",
     .holds = "a GGUF file: what keeps sets",
     .write_table = gguf_table_write,
     .why_not = "it has not what a table was fitted from (safetensors and npz do)"},
    {.name = "records",
     .holds = "the records of a run, one JSON object a line",
     .write_run = record_lines_write,
     .why_not = "records are fitted from runs and shards (`ckvc fit`)"},
};
const size_t exchange_n_formats = sizeof exchange_formats / sizeof *exchange_formats;
