/* The verbs: one function a file, one table in main.c. */
#ifndef CKVC_VERBS_H
#define CKVC_VERBS_H

int cmd_bench(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);
int cmd_compile(int argc, char **argv);
int cmd_fit(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_manifest(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_scan(int argc, char **argv);
int cmd_score(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_transfer(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_version(int argc, char **argv);

#endif
