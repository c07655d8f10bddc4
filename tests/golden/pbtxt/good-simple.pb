
simple *
INPUT0"*
INPUT1"ÿÿÿÿÿÿÿÿÿ2
OUTPUT0"
labels.txt: Šidentity