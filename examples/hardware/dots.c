/* Reads the vectors of dot products, and writes the sum of each: the unit under test would stand here. */
#include "chip.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t row(char *field, uint32_t numbers[])
{
    uint32_t n = 0;
    for (char *word = strtok(field, " "); word; word = strtok(NULL, " ")) {
        numbers[n++] = (uint32_t)strtoul(word, NULL, 16);
    }
    return n;
}

int main(void)
{
    static char line[1 << 16];
    while (fgets(line, sizeof line, stdin)) {
        uint32_t a[1024], b[1024], a_scales[32], b_scales[32];
        char *fields[6], *rest = line;
        for (int i = 0; i < 6; i++) {
            fields[i] = rest;
            rest += strcspn(rest, ",\n");
            *rest++ = 0;
        }
        if (fields[0][0] != '0') {
            puts("sum"); /* The first lines name the set and the columns. */
            continue;
        }
        uint32_t n = row(fields[1], a);
        row(fields[2], b), row(fields[3], a_scales), row(fields[4], b_scales);
        printf("0x%08x\n", (unsigned)chip_dot(a, a_scales, b, b_scales, n, (uint32_t)strtoul(fields[0], NULL, 16)));
    }
    return 0;
}
