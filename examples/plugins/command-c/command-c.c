// Reports the phase of pods. It is a plain program for stdin and stdout, and finds fields by search:
// a real one would have a library for JSON.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// field copies the text value behind a key, or nothing.
static void field(const char *line, const char *key, char *value, size_t size) {
	const char *at = strstr(line, key);
	size_t n = 0;
	if (at != NULL) {
		at += strlen(key);
		n = strcspn(at, "\"");
		if (n >= size) n = size - 1;
		memcpy(value, at, n);
	}
	value[n] = 0;
}

int main(void) {
	char *line = NULL;
	size_t capacity = 0;
	char name[254], phase[64];
	while (getline(&line, &capacity, stdin) > 0) {
		field(line, "\"name\":\"", name, sizeof name);
		field(line, "\"phase\":\"", phase, sizeof phase);
		printf("{\"events\":[{\"data\":{\"pod\":\"%s\",\"phase\":\"%s\"}}]}\n", name, phase);
	}
	free(line);
	fputs("no more deltas\n", stderr);
	return 0;
}
