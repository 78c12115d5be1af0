#include "summary.c"

int main(int argc, char **argv) {
	if (!dr_test_config(NULL)) return 1; // the setup refuses
	for (int i = 1; i < argc; i++) dr_test_golden(argv[i]);
	return dr_test_end();
}
