# make TARGET is ./do TARGET.
.DEFAULT_GOAL := help
.PHONY: run test build lint fmt bench fuzz doctor clean help
%: ; @./do $@
run test build lint fmt bench fuzz doctor clean help: ; @./do $@
Makefile: ;
