/* Layers in classes of one share, for engines that group layers whose caches have one length. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Puts n layers into at most n_classes classes by their shares, share[i * stride], and gives each
 * layer the mean of its class, in place. The sum of the shares stays what it is. Of all classes,
 * these have the least sum of squared differences between a share and its class's mean: the
 * optimum of k-means on a line, found by dynamic programming (Wang and Song, 2011,
 * "Ckmeans.1d.dp"). Where there are no more different shares than classes, nothing changes. */
void length_classes(double *share, size_t n, size_t stride, uint32_t n_classes);
